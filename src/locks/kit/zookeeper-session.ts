/**
 * One session with ZooKeeper, on node-zookeeper-client, whose callbacks become promises here.
 *
 *   connecting ──▶ connected ◀──▶ disconnected: sent requests fail, new ones wait for the next connection
 *                      └───────────────┴──expired, or closed──▶ ended: `ended` fires, and every request fails
 *
 * The client library does not notice a silent connection. A request without a timely reply closes it here, so that the
 * library connects to the next server. A request cannot be cancelled, and requests cannot overtake each other: a request
 * after one that timed out runs after it, or not at all.
 */
import { setMaxListeners } from 'node:events';
import type { Socket } from 'node:net';
import type zookeeper from 'node-zookeeper-client'; // loaded with the first session: most services need none
import { LockSetupError } from '../lock.ts';
import { within } from './within.ts';

/** Why a request failed. After `lost` and `silent` its outcome is unknown. */
export type ZookeeperFailure =
  | 'no-node'
  | 'node-exists'
  | 'not-empty'
  | 'lost'
  | 'silent'
  | 'ended'
  | 'rejected';

export class ZookeeperError extends Error {
  override readonly name = 'ZookeeperError';
  readonly code: ZookeeperFailure;
  constructor(code: ZookeeperFailure, message: string, options?: ErrorOptions) {
    super(message, options);
    this.code = code;
  }
}

/** Longest request before its connection is closed; less in a short session. */
const REPLY_MS = 1_500;
/** Longest pause between two rounds of connection attempts. */
const RECONNECT_MS = 100;
/** Longest orderly close of the connection. */
const CLOSE_MS = 500;

/** Private members of the library. */
interface Internals {
  connectionManager: {
    socket?: Socket;
    pendingBuffer: Buffer | null;
    connectTimeoutHandler: NodeJS.Timeout | null;
    onSocketData(data: Buffer): void;
  };
}

/** Error codes and kinds of nodes of the protocol. */
const FAILURES = new Map<number, ZookeeperFailure>([
  [-101, 'no-node'],
  [-110, 'node-exists'],
  [-111, 'not-empty'],
  [-4, 'lost'],
  [-112, 'ended'],
]);
const PERSISTENT = 0;
const EPHEMERAL_SEQUENTIAL = 3;

type Callback<T> = (error: Error | zookeeper.Exception | null, value: T) => void;

/**
 * Opens a session.
 * @param servers `host:port,…`
 * @throws a ZookeeperError if no server replies within `withinMs`
 */
async function openZookeeper(
  servers: string,
  timeoutMs: number,
  withinMs: number,
): Promise<ZookeeperSession> {
  const { default: library } = await import('node-zookeeper-client');
  const client = library.createClient(servers, {
    sessionTimeout: timeoutMs,
    spinDelay: RECONNECT_MS,
    retries: 0,
  });
  const internals = (client as unknown as Internals).connectionManager;
  catchParseErrors(internals);
  client.on('disconnected', () => {
    internals.pendingBuffer = null; // a partial reply of the old connection must not prefix the next one's
  });
  const connected = new Promise<true>((resolve) => client.once('connected', () => resolve(true)));
  client.connect();
  const session = new ZookeeperSession(client, internals);
  if (await within(connected, withinMs)) return session;
  await session.close();
  throw new ZookeeperError('lost', `no ZooKeeper at ${servers} replied within ${withinMs} ms`);
}

/** The library throws at an unknown error code, inside a socket's event handler where no caller can catch it. */
function catchParseErrors(internals: Internals['connectionManager']): void {
  const onSocketData = internals.onSocketData;
  internals.onSocketData = (data) => {
    try {
      onSocketData.call(internals, data);
    } catch {
      internals.pendingBuffer = null;
      internals.socket?.destroy();
    }
  };
}

export class ZookeeperSession {
  readonly #client: zookeeper.Client;
  readonly #internals: Internals['connectionManager'];
  readonly #ended = new AbortController();

  constructor(client: zookeeper.Client, internals: Internals['connectionManager']) {
    this.#client = client;
    this.#internals = internals;
    setMaxListeners(0, this.#ended.signal); // one listener per lease and waiter
    for (const event of ['expired', 'authenticationFailed']) client.on(event, () => this.#ended.abort());
  }

  /** The session timeout that the server granted, in milliseconds. */
  get timeoutMs(): number {
    return this.#client.getSessionTimeout();
  }

  /** Fires when the session ends. Its ephemeral nodes are gone then, or soon will be. */
  get ended(): AbortSignal {
    return this.#ended.signal;
  }

  async createPersistent(path: string): Promise<void> {
    await this.#request<string>((done) => this.#client.create(path, PERSISTENT, done));
  }

  /** @returns the path with the sequence number that ZooKeeper appended */
  createEphemeralSequential(path: string): Promise<string> {
    return this.#request((done) => this.#client.create(path, EPHEMERAL_SEQUENTIAL, done));
  }

  children(path: string): Promise<readonly string[]> {
    return this.#request<string[]>((done) => this.#client.getChildren(path, done));
  }

  /** The id of the transaction that created a node. `onChange` is called once, when the node changes or is removed. */
  async creation(path: string, onChange?: () => void): Promise<number> {
    // Not `exists`: its watch on a removed node would stay for ever.
    const czxid = await this.#request<Buffer>((done) => {
      const onReply = (error: Error | zookeeper.Exception | null, _: Buffer, stat: zookeeper.Stat) =>
        done(error, stat?.czxid);
      if (onChange === undefined) this.#client.getData(path, onReply);
      else this.#client.getData(path, onChange, onReply);
    });
    return Number(czxid.readBigInt64BE());
  }

  /** Fails if the node does not exist. A write without effect: a server without a leader does not confirm it. */
  async check(path: string): Promise<void> {
    await this.#request((done) => this.#client.transaction().check(path, -1).commit(done));
  }

  async remove(path: string): Promise<void> {
    await this.#request<void>((done) => this.#client.remove(path, (error) => done(error)));
  }

  async close(): Promise<void> {
    if (this.#ended.signal.aborted) return this.#disconnect();
    const { socket } = this.#internals;
    const gone = new Promise<void>((resolve) => {
      if (socket === undefined || socket.destroyed) resolve();
      else socket.once('close', () => resolve());
    });
    this.#client.close();
    this.#ended.abort();
    await within(gone, CLOSE_MS);
    this.#disconnect();
  }

  async #request<T>(send: (done: Callback<T>) => void): Promise<T> {
    if (this.#ended.signal.aborted) throw sessionEnded();
    const reply = new Promise<{ value: T }>((resolve, reject) => {
      send((error, value) => (error ? reject(failureOf(error)) : resolve({ value })));
    });
    // The library drops the callbacks of a session that ends.
    const replied = await within(reply, Math.min(REPLY_MS, this.timeoutMs / 3), this.#ended.signal);
    if (replied !== null) return replied.value;
    if (this.#ended.signal.aborted) throw sessionEnded();
    this.#internals.socket?.destroy();
    throw new ZookeeperError('silent', 'ZooKeeper did not reply in time');
  }

  #disconnect(): void {
    this.#internals.socket?.destroy();
    clearTimeout(this.#internals.connectTimeoutHandler ?? undefined);
  }
}

/** One session at a time; the first request after its end opens the next one. */
export class ZookeeperSessions {
  current: ZookeeperSession;
  readonly #open: () => Promise<ZookeeperSession>;
  #opening: Promise<ZookeeperSession> | null = null;
  #closed = false;

  /** @throws LockSetupError if no server replies within `withinMs` */
  static async open(servers: string, timeoutMs: number, withinMs: number): Promise<ZookeeperSessions> {
    const first = await openZookeeper(servers, timeoutMs, withinMs).catch((error) => {
      if (!(error instanceof ZookeeperError)) throw error;
      throw new LockSetupError(error.message, { cause: error });
    });
    return new ZookeeperSessions(first, () => openZookeeper(servers, timeoutMs, REPLY_MS));
  }

  constructor(first: ZookeeperSession, open: () => Promise<ZookeeperSession>) {
    this.current = first;
    this.#open = open;
  }

  async live(): Promise<ZookeeperSession> {
    if (!this.current.ended.aborted) return this.current;
    if (this.#closed) throw sessionEnded();
    this.#opening ??= this.#open().finally(() => {
      this.#opening = null;
    });
    this.current = await this.#opening;
    return this.current;
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#opening?.then((opened) => opened.close()).catch(() => {});
    await this.current.close();
  }
}

const sessionEnded = () => new ZookeeperError('ended', 'the ZooKeeper session has ended');

function failureOf(error: Error | zookeeper.Exception): ZookeeperError {
  const { code } = error as zookeeper.Exception;
  const message = String((error as Error).message ?? error);
  return new ZookeeperError(FAILURES.get(code) ?? 'rejected', message, { cause: error });
}
