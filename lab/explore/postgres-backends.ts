/**
 * The connections of a real Postgres behind the links. They outlive a schedule: a link that a client opens gets one that is idle, with the
 * greeting that the server once gave, and statements that the server has prepared are not prepared again.
 *
 * A statement may wait for a row. Then it is `waiting` as soon as pg_locks says so of each statement that has no reply: while one of them
 * runs, nothing is decided.
 */
import type pg from 'pg';
import type { Backend, Link, Request } from './network.ts';
import {
  BIND,
  Connection,
  IDLE,
  IN_TRANSACTION,
  message,
  messagesIn,
  nameOf,
  PARSE,
  PARSED,
  Prepared,
  QUERY,
  SYNC,
  simpleQuery,
  TERMINATE,
  textAt,
  withStatement,
} from './postgres-connection.ts';
import { CIRCLE } from './server-texts.ts';
import { real, virtual } from './virtual.ts';

/** Real time that a statement may take before pg_locks is read. */
const PROMPT_MS = 1;

export interface PostgresControl {
  readonly sql: pg.Pool;
  /** For what is read often. */
  readonly own: Connection;
  /** Its Unix-domain socket, which is faster than TCP. */
  readonly path: string;
  /** Whether commits wait for a standby. */
  readonly isSynchronous: boolean;
}

type Reply = Buffer | 'ended';

/** Statements that commit nothing. */
const READS = /^(BEGIN|END|SET|SELECT left)/;

/** One that releases locks inside a transaction. */
const RELEASES = /^ROLLBACK TO/;

/** Lets a reply that has arrived be read. */
const turn = () => new Promise((resolve) => real.setImmediate(resolve));

const WAITING =
  'SELECT pid, waitstart::text AS what FROM pg_locks WHERE NOT granted AND waitstart IS NOT NULL';
const REPLICATING = `SELECT pid, 'commit' FROM pg_stat_get_activity(NULL) WHERE wait_event = 'SyncRep'`;

export class PostgresBackends {
  readonly #control: PostgresControl;
  readonly #idle = new Map<string, Connection[]>();
  readonly #names = new Map<string, string>();
  readonly #waits: Prepared;

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
    const text = control.isSynchronous ? `${WAITING} UNION ALL ${REPLICATING}` : WAITING;
    this.#waits = new Prepared(control.own, 'waits', text);
  }

  /** A connection for a link. @param startup the client's first message, with its parameters */
  async take(startup: Buffer): Promise<Connection> {
    const key = startup.toString('latin1');
    return this.#idle.get(key)?.pop() ?? Connection.open(this.#control.path, startup);
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
    const canReplicate = this.#control.isSynchronous && !READS.test(request.name);
    if (!canReplicate && this.#running.size === 0 && this.#isAlone(backend)) await ask();
    else
      await this.#inTurn(async () => {
        await this.#promptly(ask());
        return (
          reply === undefined || backend.connection!.status !== IN_TRANSACTION || RELEASES.test(request.name)
        );
      });
    isLate = reply === undefined;
    await this.#deliverLate();
    return reply ?? 'waiting';
  }

  /** Waits for a reply; not for that of a statement that seems to wait. */
  async #promptly(reply: Promise<void>): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = real.setTimeout(resolve, PROMPT_MS);
      this.logged = resolve;
    });
    await Promise.race([reply, late]);
    real.clearTimeout(timer);
  }

  /** Called when the standby has received something: a commit may wait for it. */
  logged: () => void = () => {};

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

  /** Cancels the statement of a link, which waits. One that offers units to the waitlist goes on, and may wait again: see server-texts.ts. */
  async cancel(link: Link): Promise<void> {
    const backend = link.backend as PostgresBackend;
    const { pid } = backend.connection!;
    const wait = async () => (await this.#waiting()).get(pid);
    await this.#inTurn(async () => {
      const before = await wait();
      this.#goOn(pid);
      await this.#control.sql.query('SELECT pg_cancel_backend($1)', [pid]);
      while (this.#running.has(backend) && [before, undefined].includes(await wait())) await turn();
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
    await this.#inTurn(() => backend.connection!.ask(simpleQuery('ROLLBACK')));
    this.open.delete(backend);
    await this.#deliverLate();
  }

  /** Since when a transaction of a link is open without a statement, on the virtual clock; null: there is none. */
  idleSince(link: Link): PostgresBackend['idle'] | null {
    const backend = link.backend as PostgresBackend;
    return this.open.has(backend) && !this.#running.has(backend) ? backend.idle : null;
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
    await this.#stable();
    await this.#deliverLate();
  }

  readonly #stopped = new Set<number>();

  /** To be called before the server ends: a process that is stopped would outlive it. */
  end(): void {
    this.#stop = () => {};
    for (const pid of this.#stopped) this.#goOn(pid);
  }

  #goOn(pid: number): void {
    if (this.#stopped.delete(pid)) process.kill(pid, 'SIGCONT');
  }

  #stop = (pid: number): void => {
    this.#stopped.add(pid);
    process.kill(pid, 'SIGSTOP');
  };

  /**
   * Does what may end the wait of others, who then go on one after the other, in the order in which they began to wait. Several that wait
   * for one row would race for its next version. The processes of all are stopped meanwhile: one that waits for a lock sleeps, and holds
   * nothing inside the server.
   * @param work returns false when it has released nothing, and does not wait
   */
  async #inTurn(work: () => Promise<unknown>): Promise<void> {
    const waiting = [...this.#running.keys()].filter((one) => !this.replicating.has(one));
    const pids = waiting.length < 2 ? [] : waiting.map(({ connection }) => connection!.pid);
    for (const pid of pids) this.#stop(pid);
    virtual.showNow(); // what goes on reads the clock
    if ((await work()) !== false) {
      await this.#stable();
      while (this.#stopped.size > 0) {
        const held = await this.#waiting();
        const next = pids.find((pid) => this.#stopped.has(pid) && !held.has(pid));
        if (next === undefined) break;
        this.#goOn(next);
        await this.#stable();
        if (waiting.some((one) => one.connection!.pid === next && this.#running.has(one))) this.#stop(next);
      }
    }
    for (const pid of pids) this.#goOn(pid);
  }

  /** Waits until each statement without a reply waits, or its process is stopped. */
  async #stable(): Promise<void> {
    for (;;) {
      const running = [...this.#running.keys()].filter((one) => !this.#stopped.has(one.connection!.pid));
      if (running.length === 0) return;
      const waiting = await this.#waiting();
      // One that has been answered meanwhile may have ended the wait of others after they were read.
      if (running.every((one) => this.#running.has(one) && waiting.has(one.connection!.pid))) {
        for (const one of running)
          if (waiting.get(one.connection!.pid) === 'commit') this.replicating.add(one);
        return;
      }
      await turn();
    }
  }

  /** Cancels the last of the statements that wait for each other, if there are any, as Postgres would after `deadlock_timeout`. */
  async breakCircle(): Promise<void> {
    const pids = [...this.#running.keys()].map(({ connection }) => connection!.pid);
    const { rows } = await this.#control.sql.query<{ pid: number }>(CIRCLE, [pids]);
    const isInIt = ({ connection }: PostgresBackend) => rows.some(({ pid }) => pid === connection!.pid);
    const last = [...this.#running.keys()].findLast(isInIt);
    if (last !== undefined) await this.cancel(last.link);
  }

  /** What waits, by the id of its process: since when for a lock, or `commit`: for the standby. */
  async #waiting(): Promise<ReadonlyMap<number, string>> {
    const rows = await this.#waits.rows();
    return new Map(rows.map(([pid, what]) => [Number(pid), what!]));
  }
}

/** The server's side of one link. */
export class PostgresBackend implements Backend {
  readonly link: Link;
  readonly #all: PostgresBackends;
  #startup: Buffer | null = null;
  connection: Connection | null = null;
  /** Since its last reply. */
  idle = { sinceMs: 0 };
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
    const pending = this.#pending;
    let from = 0;
    for (let at = 0; at + 5 <= pending.length; ) {
      const type = pending[at];
      at += 1 + pending.readInt32BE(at + 1);
      if (type !== SYNC && type !== QUERY && type !== TERMINATE) continue;
      const unit = pending.subarray(from, at);
      found.push({ bytes: unit, name: nameOf(unit) });
      from = at;
    }
    this.#pending = pending.subarray(from);
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
    this.idle = { sinceMs: virtual.nowMs };
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
