/**
 * The connections of a real Postgres behind the links. They outlive a schedule: a link that a client opens gets one that is idle, with the
 * greeting that the server once gave, and statements that the server has prepared are not prepared again.
 *
 * A statement may wait for a row. Then it is `waiting` as soon as pg_locks says so of each statement that has no reply: while one of them
 * runs, nothing is decided.
 */
import type { Socket } from 'node:net';
import type pg from 'pg';
import type { Backend, Link, Request } from './network.ts';
import { real, virtual } from './virtual.ts';

const READY = 0x5a; // 'Z'
const PARSE = 0x50; // 'P'
const BIND = 0x42; // 'B'
const QUERY = 0x51; // 'Q'
const SYNC = 0x53; // 'S'
const TERMINATE = 0x58; // 'X'
const PARSED = Buffer.from([0x31, 0, 0, 0, 4]);
const IDLE = 0x49; // 'I'

/** Real time that a statement may take before pg_locks is read. */
const PROMPT_MS = 2;

/** A message with its type and length. */
function* messagesIn(bytes: Buffer): Generator<Buffer> {
  for (let at = 0; at + 5 <= bytes.length; ) {
    const end = at + 1 + bytes.readInt32BE(at + 1);
    yield bytes.subarray(at, end);
    at = end;
  }
}

const textAt = (bytes: Buffer, at: number): string => bytes.toString('utf8', at, bytes.indexOf(0, at));

/** One connection of the server. */
class Connection {
  readonly #socket: Socket;
  #received: Buffer = Buffer.alloc(0);
  #reply: ((reply: Buffer | 'ended') => void) | null = null;
  /** The greeting, from "authenticated" to "ready". */
  greeting: Buffer = Buffer.alloc(0);
  pid = 0;
  /** The text of each prepared statement. */
  readonly prepared = new Map<string, string>();
  /** `I`: no transaction; `T`, `E`: one is open, or has failed. */
  status = IDLE;
  hasEnded = false;
  readonly ended: Promise<void>;

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('data', (chunk: Buffer) => this.#receive(chunk));
    this.ended = new Promise((resolve) => {
      const end = () => {
        this.hasEnded = true;
        this.#settle('ended');
        resolve();
      };
      socket.on('error', end);
      socket.on('close', end);
    });
  }

  /** @returns the reply up to "ready" */
  ask(bytes: Buffer): Promise<Buffer | 'ended'> {
    if (this.hasEnded) return Promise.resolve('ended');
    return new Promise((resolve) => {
      this.#reply = resolve;
      this.#socket.write(bytes);
    });
  }

  end(): void {
    this.#socket.destroy();
  }

  #receive(chunk: Buffer): void {
    this.#received = this.#received.length === 0 ? chunk : Buffer.concat([this.#received, chunk]);
    let end = 0;
    for (const message of messagesIn(this.#received)) {
      if (end + message.length > this.#received.length) return;
      if (message.length < 1 + message.readInt32BE(1)) return;
      end += message.length;
      if (message[0] !== READY) continue;
      this.status = message[5]!;
      const reply = Buffer.from(this.#received.subarray(0, end));
      this.#received = Buffer.from(this.#received.subarray(end));
      this.#settle(reply);
      return;
    }
  }

  #settle(reply: Buffer | 'ended'): void {
    const settle = this.#reply;
    this.#reply = null;
    settle?.(reply);
  }
}

export interface PostgresControl {
  readonly sql: pg.Pool;
  /** Its Unix-domain socket, which is faster than TCP. */
  readonly path: string;
  /** Whether commits wait for a standby. */
  readonly isSynchronous: boolean;
}

type Reply = Buffer | 'ended';

/** Statements that commit nothing. */
const READS = /^(BEGIN|SET|SELECT left)/;

const WAITING = `SELECT pid, 'lock' AS what FROM pg_locks WHERE NOT granted`;
const REPLICATING = `SELECT pid, 'commit' FROM pg_stat_get_activity(NULL) WHERE wait_event = 'SyncRep'`;

export class PostgresBackends {
  readonly #control: PostgresControl;
  readonly #idle = new Map<string, Connection[]>();
  readonly #names = new Map<string, string>();

  /** The name under which a statement without one is prepared. */
  nameOf(text: string): string {
    const name = this.#names.get(text) ?? `explored-${this.#names.size}`;
    this.#names.set(text, name);
    return name;
  }

  isOpen(link: Link): boolean {
    return this.open.has(link.backend as PostgresBackend);
  }

  isReplicating(link: Link): boolean {
    return this.replicating.has(link.backend as PostgresBackend);
  }

  /** Links with an open transaction. */
  readonly open = new Set<PostgresBackend>();
  /** Those whose commit waits for the standby. */
  readonly replicating = new Set<PostgresBackend>();
  /** Statements without a reply. */
  readonly #running = new Map<PostgresBackend, Promise<void>>();
  /** Receives the replies of statements that have waited. */
  answered: (link: Link, request: Request, reply: Reply) => Promise<void> = async () => {};

  constructor(control: PostgresControl) {
    this.#control = control;
  }

  /** A connection for a link. @param startup the client's first message, with its parameters */
  async take(startup: Buffer): Promise<Connection> {
    const key = startup.toString('latin1');
    const idle = this.#idle.get(key)?.pop();
    if (idle !== undefined) return idle;
    const socket = real.createConnection(this.#control.path);
    const connection = new Connection(socket);
    const greeting = await connection.ask(startup);
    if (greeting === 'ended') throw new Error('the Postgres of the explorer refuses a connection');
    connection.greeting = greeting;
    for (const message of messagesIn(greeting))
      if (message[0] === 0x4b) connection.pid = message.readInt32BE(5);
    return connection;
  }

  give(startup: Buffer, connection: Connection): void {
    if (connection.hasEnded) return;
    const key = startup.toString('latin1');
    this.#idle.set(key, [...(this.#idle.get(key) ?? []), connection]);
  }

  backendOf(link: Link): PostgresBackend {
    return new PostgresBackend(this, link);
  }

  /** Runs one statement until it is answered or waits. */
  async run(backend: PostgresBackend, request: Request, bytes: Buffer): Promise<Reply | 'waiting'> {
    let reply: Reply | undefined;
    let isLate = false;
    const ask = () => {
      const replying = backend.connection!.ask(bytes).then((found) => {
        reply = found;
        this.#running.delete(backend);
        this.replicating.delete(backend);
        if (isLate) this.#late.push({ backend, request, reply: found });
      });
      this.#running.set(backend, replying);
      return replying;
    };
    const { isSynchronous } = this.#control;
    const canWait = isSynchronous && !READS.test(request.name);
    if (!canWait && this.#running.size === 0 && this.#isAlone(backend)) await ask();
    else
      await this.#inTurn(async () => {
        void ask();
        await this.#stable(isSynchronous ? 0 : PROMPT_MS);
      });
    isLate = reply === undefined;
    await this.#deliverLate();
    return reply ?? 'waiting';
  }

  /** Whether no other connection can hold a row. */
  #isAlone(backend: PostgresBackend): boolean {
    return this.open.size === 0 || (this.open.size === 1 && this.open.has(backend));
  }

  readonly #late: { readonly backend: PostgresBackend; readonly request: Request; readonly reply: Reply }[] =
    [];

  /** What has waited and is answered by now, in the order of the links. */
  async #deliverLate(): Promise<void> {
    const late = this.#late.splice(0).sort((a, b) => a.backend.link.id - b.backend.link.id);
    for (const { backend, request, reply } of late)
      await this.answered(backend.link, request, backend.received(reply));
  }

  /** Cancels the statement of a link, which waits. */
  async cancel(link: Link): Promise<void> {
    const backend = link.backend as PostgresBackend;
    const replying = this.#running.get(backend);
    const { pid } = backend.connection!;
    await this.#inTurn(async () => {
      this.#goOn(pid);
      await this.#control.sql.query('SELECT pg_cancel_backend($1)', [pid]);
      await replying;
    });
    await this.#deliverLate();
  }

  /** Ends the server's process of a link. */
  async terminate(link: Link): Promise<void> {
    const backend = link.backend as PostgresBackend;
    const { pid, ended } = backend.connection!;
    await this.#inTurn(async () => {
      await this.#control.sql.query('SELECT pg_terminate_backend($1)', [pid]);
      await ended;
      // It has closed its connection before it releases what it held.
      const isThere = 'SELECT FROM pg_stat_activity WHERE pid = $1';
      while ((await this.#control.sql.query(isThere, [pid])).rowCount! > 0);
    });
    this.open.delete(backend);
    await this.#deliverLate();
  }

  /** Rolls back the transaction of a link that is over. */
  async rollBack(backend: PostgresBackend): Promise<void> {
    await this.#inTurn(async () => {
      await backend.connection!.ask(simpleQuery('ROLLBACK'));
    });
    this.open.delete(backend);
    await this.#deliverLate();
  }

  /** Since when a transaction of a link is open without a statement, on the virtual clock; null: there is none. */
  idleSinceMs(link: Link): number | null {
    const backend = link.backend as PostgresBackend;
    return this.open.has(backend) && !this.#running.has(backend) ? backend.answeredAtMs : null;
  }

  /** Lets the commits that wait for the standby end. @param confirm says that it has what they wait for */
  async replicated(confirm: () => void): Promise<void> {
    await this.#inTurn(async () => {
      const ending = [...this.replicating].map((backend) => this.#running.get(backend));
      confirm();
      await Promise.all(ending);
    });
    await this.#deliverLate();
  }

  /** Waits until each statement without a reply waits for another, after something has ended. */
  async settle(): Promise<void> {
    await this.#stable(0);
    await this.#deliverLate();
  }

  readonly #stopped = new Set<number>();

  #goOn(pid: number): void {
    if (this.#stopped.delete(pid)) process.kill(pid, 'SIGCONT');
  }

  #stop(pid: number): void {
    this.#stopped.add(pid);
    process.kill(pid, 'SIGSTOP');
  }

  /**
   * Does what may end the wait of others, who then go on one after the other, in the order in which they began to wait. Several that wait
   * for one row would race for its next version. The processes of all are stopped meanwhile: one that waits for a lock sleeps, and holds
   * nothing inside the server.
   */
  async #inTurn(work: () => Promise<void>): Promise<void> {
    const waiting = [...this.#running.keys()].filter((one) => !this.replicating.has(one));
    const pids = waiting.length < 2 ? [] : waiting.map(({ connection }) => connection!.pid);
    for (const pid of pids) this.#stop(pid);
    await work();
    for (;;) {
      await this.#stable(0);
      if (this.#stopped.size === 0) return;
      const held = await this.#waiting();
      const next = pids.find((pid) => this.#stopped.has(pid) && !held.has(pid));
      if (next === undefined) break;
      this.#goOn(next);
      await this.#stable(0);
      if (waiting.some((one) => one.connection!.pid === next && this.#running.has(one))) this.#stop(next);
    }
    for (const pid of pids) this.#goOn(pid);
  }

  /** Waits until each statement without a reply waits, or its process is stopped. */
  async #stable(promptMs: number): Promise<void> {
    if (this.#running.size === 0) return;
    if (promptMs > 0) {
      let timer: NodeJS.Timeout | undefined;
      const prompt = new Promise<void>((resolve) => {
        timer = real.setTimeout(resolve, promptMs);
      });
      await Promise.race([Promise.all(this.#running.values()), prompt]);
      real.clearTimeout(timer);
    }
    for (;;) {
      const running = [...this.#running.keys()].filter((one) => !this.#stopped.has(one.connection!.pid));
      if (running.length === 0) return;
      const waiting = await this.#waiting();
      if (running.every((one) => !this.#running.has(one) || waiting.has(one.connection!.pid))) {
        for (const one of running)
          if (this.#running.has(one) && waiting.get(one.connection!.pid) === 'commit')
            this.replicating.add(one);
        return;
      }
      await new Promise((resolve) => real.setImmediate(resolve));
    }
  }

  /** What waits, by the id of its process: for a lock, or a commit for the standby. */
  async #waiting(): Promise<ReadonlyMap<number, 'lock' | 'commit'>> {
    const { sql, isSynchronous } = this.#control;
    const { rows } = await sql.query<{ pid: number; what: 'lock' | 'commit' }>(
      isSynchronous ? `${WAITING} UNION ALL ${REPLICATING}` : WAITING,
    );
    return new Map(rows.map(({ pid, what }) => [pid, what]));
  }
}

/** The server's side of one link. */
export class PostgresBackend implements Backend {
  readonly link: Link;
  readonly #all: PostgresBackends;
  #startup: Buffer | null = null;
  connection: Connection | null = null;
  answeredAtMs = 0;
  #pending: Buffer = Buffer.alloc(0);
  /** The statement that the request prepares. */
  #preparing: readonly [name: string, text: string] | null = null;
  /** Parse messages that were left out of the request, which the client expects to be answered. */
  #leftOut = 0;

  constructor(all: PostgresBackends, link: Link) {
    this.#all = all;
    this.link = link;
  }

  requestsIn(bytes: Buffer): Request[] {
    this.#pending = this.#pending.length === 0 ? bytes : Buffer.concat([this.#pending, bytes]);
    const found: Request[] = [];
    if (this.#startup === null && this.#pending.length >= 4) {
      const length = this.#pending.readInt32BE(0);
      this.#startup = Buffer.from(this.#pending.subarray(0, length));
      this.#pending = Buffer.from(this.#pending.subarray(length));
      found.push({ bytes: this.#startup, name: 'connect' });
    }
    let from = 0;
    let end = 0;
    for (const message of messagesIn(this.#pending)) {
      end += message.length;
      const [type] = message;
      if (type !== SYNC && type !== QUERY && type !== TERMINATE) continue;
      const unit = Buffer.from(this.#pending.subarray(from, end));
      found.push({ bytes: unit, name: nameOf(unit) });
      from = end;
    }
    this.#pending = Buffer.from(this.#pending.subarray(from));
    return found;
  }

  async execute(request: Request): Promise<Buffer | 'waiting' | 'ended'> {
    if (this.connection === null) {
      this.connection = await this.#all.take(request.bytes);
      return this.connection.greeting;
    }
    if (request.bytes[0] === TERMINATE) return 'ended';
    const reply = await this.#all.run(this, request, this.#withoutPrepared(request.bytes));
    return reply === 'waiting' ? reply : this.received(reply);
  }

  /** What the client gets for the server's reply. */
  received(reply: Reply): Reply {
    this.answeredAtMs = virtual.nowMs;
    if (this.connection!.status === IDLE) this.#all.open.delete(this);
    else this.#all.open.add(this);
    if (reply === 'ended') return reply;
    if (this.#preparing !== null && reply[0] === PARSED[0]) this.connection!.prepared.set(...this.#preparing);
    this.#preparing = null;
    const before = Array.from({ length: this.#leftOut }, () => PARSED);
    this.#leftOut = 0;
    return before.length === 0 ? reply : Buffer.concat([...before, reply]);
  }

  /**
   * Leaves out what the server has prepared already. A statement without a name gets one: then it is planned once, and not in each
   * schedule again.
   */
  #withoutPrepared(bytes: Buffer): Buffer {
    if (bytes[0] !== PARSE) return bytes;
    const [parse, bind, ...rest] = messagesIn(bytes);
    const given = textAt(parse!, 5);
    const text = textAt(parse!, 5 + Buffer.byteLength(given) + 1);
    const name = given === '' ? this.#all.nameOf(text) : given;
    const bound = given === '' && bind![0] === BIND ? withStatement(bind!, name) : bind!;
    const { prepared } = this.connection!;
    if (prepared.get(name) === text) {
      this.#leftOut++;
      return Buffer.concat([bound, ...rest]);
    }
    this.#preparing = [name, text];
    const named = given === '' ? message(PARSE, Buffer.from(`${name}\0`), parse!.subarray(6)) : parse!;
    return Buffer.concat([named, bound, ...rest]);
  }

  isGreeting({ name }: Request): boolean {
    return name === 'connect';
  }

  async close(): Promise<void> {
    const { connection } = this;
    if (connection === null) return;
    if (connection.status !== IDLE) await this.#all.rollBack(this);
    this.#all.give(this.#startup!, connection);
    this.connection = null;
  }
}

function message(type: number, ...parts: readonly Buffer[]): Buffer {
  const head = Buffer.alloc(5);
  head[0] = type;
  head.writeInt32BE(4 + parts.reduce((sum, { length }) => sum + length, 0), 1);
  return Buffer.concat([head, ...parts]);
}

const simpleQuery = (text: string): Buffer => message(QUERY, Buffer.from(`${text}\0`));

/** A Bind message of an unnamed statement, for a named one. */
function withStatement(bind: Buffer, name: string): Buffer {
  const at = bind.indexOf(0, 5) + 1; // behind the name of the portal
  return message(BIND, bind.subarray(5, at), Buffer.from(`${name}\0`), bind.subarray(at + 1));
}

/** The name of a prepared statement, or the first words of another. */
function nameOf(unit: Buffer): string {
  for (const message of messagesIn(unit)) {
    const [type] = message;
    if (type === TERMINATE) return 'end';
    if (type === QUERY) return wordsOf(textAt(message, 5));
    if (type === PARSE) {
      const name = textAt(message, 5);
      return name === '' ? wordsOf(textAt(message, 6)) : name;
    }
    if (type === BIND) return textAt(message, 5 + textLength(message, 5) + 1) || 'statement';
  }
  return 'statement';
}

const textLength = (bytes: Buffer, at: number): number => bytes.indexOf(0, at) - at;

function wordsOf(text: string): string {
  const words = text.replaceAll(/\s+/g, ' ').trim();
  const table = /\b(?:FROM|INTO|UPDATE) ([a-z_]{3,})/.exec(words)?.[1];
  const verb = /^[A-Za-z]+/.exec(words)?.[0] ?? '';
  return /^(BEGIN|COMMIT|ROLLBACK|SET)/.test(verb)
    ? words.slice(0, 40)
    : `${verb} ${table ?? words.slice(verb.length + 1, 30)}`;
}
