/**
 * The connections of a real Redis behind the links. A logical database stands for a server: another one has other data and another
 * identity, which replies of INFO carry. So a server that is restored from a snapshot, or promoted, costs no process.
 */
import { createHash } from 'node:crypto';
import type { Socket } from 'node:net';
import type { Backend, Link, Request } from './network.ts';
import { real } from './virtual.ts';

const CR = 0x0d;
const MINUS = 0x2d; // '-'
/** Types of replies, by their first bytes, that have a body of so many bytes; that have so many members; and so many pairs of them. */
const [BODIES, LISTS, PAIRS] = ['$=!', '*~>', '%|'].map((types) => [...Buffer.from(types)]) as [
  number[],
  number[],
  number[],
];

/** The number of bytes of the first reply in the buffer; 0: it is not complete. */
export function replyLength(bytes: Buffer, from = 0): number {
  const line = bytes.indexOf(CR, from);
  if (line < 0 || line + 1 === bytes.length) return 0;
  const size = line + 2 - from;
  const type = bytes[from]!;
  const isPairs = PAIRS.includes(type);
  if (isPairs || LISTS.includes(type)) {
    const count = countIn(bytes, from + 1, line);
    return membersLength(bytes, from, size, isPairs ? 2 * count : count);
  }
  if (!BODIES.includes(type)) return size;
  const count = countIn(bytes, from + 1, line);
  const body = count < 0 ? 0 : count + 2;
  return bytes.length - from >= size + body ? size + body : 0;
}

/** The number that is written there; below zero: null. */
function countIn(bytes: Buffer, from: number, to: number): number {
  if (bytes[from] === MINUS) return -1;
  let count = 0;
  for (let at = from; at < to; at++) count = 10 * count + bytes[at]! - 0x30;
  return count;
}

function membersLength(bytes: Buffer, from: number, size: number, count: number): number {
  let length = size;
  for (let n = 0; n < count; n++) {
    const member = replyLength(bytes, from + length);
    if (member === 0) return 0;
    length += member;
  }
  return length;
}

const PUSH = 0x3e; // '>'

export class RedisConnection {
  readonly #socket: Socket;
  #received: Buffer = Buffer.alloc(0);
  readonly #waiting: ((reply: Buffer) => void)[] = [];
  /** Receives what arrives without a request: messages of channels. */
  pushed: (bytes: Buffer) => void = () => {};

  /** @param path of the server's Unix-domain socket, which is faster than TCP */
  constructor(path: string) {
    this.#socket = real.createConnection(path);
    this.#socket.on('error', () => {});
    this.#socket.on('data', (chunk: Buffer) => this.#receive(chunk));
  }

  ask(bytes: Buffer): Promise<Buffer> {
    return new Promise((resolve) => {
      this.#waiting.push(resolve);
      this.#socket.write(bytes);
    });
  }

  end(): void {
    this.#socket.destroy();
  }

  #receive(chunk: Buffer): void {
    this.#received = this.#received.length === 0 ? chunk : Buffer.concat([this.#received, chunk]);
    for (;;) {
      const length = this.#received.length === 0 ? 0 : replyLength(this.#received);
      if (length === 0) return;
      const reply = this.#received.subarray(0, length);
      this.#received = this.#received.subarray(length);
      // The answer to SUBSCRIBE is a push, too.
      if (reply[0] === PUSH && !reply.includes('subscribe')) this.pushed(reply);
      else this.#waiting.shift()?.(reply);
    }
  }
}

export const redisCommand = (...words: readonly (string | number)[]): Buffer =>
  Buffer.from(
    `*${words.length}\r\n${words.map((word) => `$${Buffer.byteLength(String(word))}\r\n${word}\r\n`).join('')}`,
  );

const INFO = redisCommand('info');
/** The sections that the service and its client read: the whole text costs as much as several scripts. */
const BRIEF_INFO = redisCommand('INFO', 'server', 'replication', 'persistence');

/** What INFO says of a logical server: each has another identity. @param server its logical database */
export function withIdentity(info: Buffer, server: number): Buffer {
  const own = Buffer.from(info);
  for (const name of ['run_id', 'master_replid']) {
    const at = own.indexOf(`\n${name}:`);
    const identity = `${name} ${server} `.padEnd(40, '0').replaceAll(/\W/g, '-');
    if (at >= 0) own.write(identity, at + name.length + 2);
  }
  return own;
}

export interface Script {
  readonly name: string;
  /** Whether it can send messages to channels. */
  readonly publishes: boolean;
}

export class RedisBackends {
  readonly #path: string;
  readonly control: RedisConnection;
  readonly #idle: RedisConnection[] = [];
  readonly #scripts: ReadonlyMap<string, Script>;
  readonly subscribers = new Set<RedisBackend>();
  /** Receives what a subscriber is sent. */
  pushed: (link: Link, bytes: Buffer) => void = () => {};

  /** @param scripts by hash */
  constructor(path: string, scripts: ReadonlyMap<string, Script>) {
    this.#path = path;
    this.control = new RedisConnection(path);
    this.#scripts = scripts;
  }

  take(): RedisConnection {
    return this.#idle.pop() ?? new RedisConnection(this.#path);
  }

  async give(connection: RedisConnection): Promise<void> {
    connection.pushed = () => {};
    await connection.ask(redisCommand('RESET'));
    this.#idle.push(connection);
  }

  scriptOf(hash: string): Script {
    return this.#scripts.get(hash) ?? { name: 'a script', publishes: true };
  }

  /** What was published has arrived at every subscriber. */
  async flush(): Promise<void> {
    await Promise.all([...this.subscribers].map(({ connection }) => connection!.ask(redisCommand('PING'))));
  }
}

export class RedisBackend implements Backend {
  readonly #all: RedisBackends;
  readonly #link: Link;
  /** The logical database. */
  readonly server: number;
  connection: RedisConnection | null = null;
  #pending: Buffer = Buffer.alloc(0);
  /** Whether the client has read INFO, as the last part of the opening. */
  #isReady = false;

  constructor(all: RedisBackends, link: Link, server: number) {
    this.#all = all;
    this.#link = link;
    this.server = server;
  }

  async open(): Promise<this> {
    this.connection = this.#all.take();
    this.connection.pushed = (bytes) => this.#all.pushed(this.#link, bytes);
    await this.connection.ask(redisCommand('SELECT', this.server));
    return this;
  }

  requestsIn(bytes: Buffer): (Request & Script)[] {
    this.#pending = this.#pending.length === 0 ? bytes : Buffer.concat([this.#pending, bytes]);
    const found: (Request & Script)[] = [];
    for (;;) {
      const length = this.#pending.length === 0 ? 0 : replyLength(this.#pending);
      if (length === 0) return found;
      const command = this.#pending.subarray(0, length);
      this.#pending = this.#pending.subarray(length);
      found.push({ bytes: command, ...this.#read(command) });
    }
  }

  #read(command: Buffer): Script {
    const [, , name, size, second] = command.toString('latin1').split('\r\n', 5);
    const verb = name!.toLowerCase();
    if (verb === 'evalsha') return this.#all.scriptOf(second!);
    if (verb === 'eval') {
      const at = command.indexOf('\r\n', command.indexOf(size!)) + 2;
      const text = command.subarray(at, at + Number(size!.slice(1)));
      return this.#all.scriptOf(createHash('sha1').update(text).digest('hex'));
    }
    const words = verb === 'client' ? `${verb} ${second?.toLowerCase() ?? ''}` : verb;
    return { name: words, publishes: verb === 'publish' };
  }

  async execute(request: Request & Script): Promise<Buffer> {
    const reply = await this.connection!.ask(request.bytes.equals(INFO) ? BRIEF_INFO : request.bytes);
    if (request.name === 'info') this.#isReady = true;
    if (request.name === 'subscribe') this.#all.subscribers.add(this);
    if (request.publishes) await this.#all.flush();
    if (request.name !== 'info') return reply;
    return withIdentity(reply, this.server);
  }

  isGreeting({ name }: Request): boolean {
    return name === 'hello' || name === 'client setinfo' || (name === 'info' && !this.#isReady);
  }

  async close(): Promise<void> {
    this.#all.subscribers.delete(this);
    if (this.connection !== null) await this.#all.give(this.connection);
    this.connection = null;
  }
}
