/**
 * One session with ZooKeeper, on node-zookeeper-client, whose callbacks become promises here.
 *
 *   connecting ──▶ connected ◀──▶ cut off: requests that were sent fail, new ones wait for the next connection
 *                      └───────────────┴──expired, or closed──▶ ended: `ended` fires, and every request fails
 *
 * The client library does not notice a connection that went silent: a request that is not answered in time cuts it
 * here, so that the library connects again, to the next server. Its own requests can neither be taken back nor
 * overtake each other: what is asked after a request that was given up is carried out after it, or not at all.
 */
import { setMaxListeners } from 'node:events';
import type { Socket } from 'node:net';
import zookeeper from 'node-zookeeper-client';

/** Why a request failed; `lost` and `silent`: nobody knows whether it was carried out. */
export type ZookeeperFailure =
  | 'no-node'
  | 'node-exists'
  | 'not-empty'
  | 'lost'
  | 'silent'
  | 'ended'
  | 'refused';

export class ZookeeperError extends Error {
  override readonly name = 'ZookeeperError';
  readonly code: ZookeeperFailure;
  constructor(code: ZookeeperFailure, message: string) {
    super(message);
    this.code = code;
  }
}

export interface ZookeeperSession {
  /** What the server granted, in milliseconds. */
  readonly timeoutMs: number;
  /** Fires when the session is over; what it made that was ephemeral is gone then, or will be. */
  readonly ended: AbortSignal;
  createPersistent(path: string): Promise<void>;
  /** @returns the path with the number that ZooKeeper appended */
  createEphemeralSequential(path: string): Promise<string>;
  children(path: string): Promise<readonly string[]>;
  /** The number of the write that created a node; `onChange` is called at most once, when it changes or goes. */
  creation(path: string, onChange?: () => void): Promise<number>;
  /** Fails when the node is not there. A write without effect: a server that lost its leader does not answer it. */
  check(path: string): Promise<void>;
  remove(path: string): Promise<void>;
  close(): Promise<void>;
}

/** How long a request may take before its connection is cut; less for a short session. */
const ANSWER_MS = 1_500;
/** Between two rounds through all servers, at most. */
const SPIN_MS = 100;
/** How long a good-bye may take. */
const FAREWELL_MS = 500;

/** What the library does not show. */
interface Inside {
  connectionManager: {
    socket?: Socket;
    pendingBuffer: Buffer | null;
    connectTimeoutHandler: NodeJS.Timeout | null;
    onSocketData(data: Buffer): void;
  };
}

const { Exception } = zookeeper;
const FAILURES = new Map<number, ZookeeperFailure>([
  [Exception.NO_NODE, 'no-node'],
  [Exception.NODE_EXISTS, 'node-exists'],
  [Exception.NOT_EMPTY, 'not-empty'],
  [Exception.CONNECTION_LOSS, 'lost'],
  [Exception.SESSION_EXPIRED, 'ended'],
]);

type Callback<T> = (error: Error | zookeeper.Exception | null, value: T) => void;

/**
 * Opens a session.
 * @param servers `host:port,…`
 * @throws a ZookeeperError when no server answers within `withinMs`
 */
async function openZookeeper(
  servers: string,
  timeoutMs: number,
  withinMs: number,
): Promise<ZookeeperSession> {
  const client = zookeeper.createClient(servers, {
    sessionTimeout: timeoutMs,
    spinDelay: SPIN_MS,
    retries: 0,
  });
  const inside = (client as unknown as Inside).connectionManager;
  guard(inside);
  client.on('disconnected', () => {
    inside.pendingBuffer = null; // half an answer of the old connection is not the beginning of the next one's
  });
  const connected = new Promise<boolean>((resolve) => {
    const timer = setTimeout(() => resolve(false), withinMs);
    client.once('connected', () => {
      clearTimeout(timer);
      resolve(true);
    });
  });
  client.connect();
  const session = new Session(client, inside);
  if (await connected) return session;
  await session.close();
  throw new ZookeeperError('lost', `no ZooKeeper at ${servers} answered within ${withinMs} ms`);
}

/** One session at a time: when it has ended, the next one is opened for whoever asks. */
export class ZookeeperSessions {
  current: ZookeeperSession;
  readonly #open: () => Promise<ZookeeperSession>;
  #opening: Promise<ZookeeperSession> | null = null;
  #closed = false;

  /** @throws a ZookeeperError when no server answers within `withinMs` */
  static async open(servers: string, timeoutMs: number, withinMs: number): Promise<ZookeeperSessions> {
    const first = await openZookeeper(servers, timeoutMs, withinMs);
    return new ZookeeperSessions(first, () => openZookeeper(servers, timeoutMs, ANSWER_MS));
  }

  constructor(first: ZookeeperSession, open: () => Promise<ZookeeperSession>) {
    this.current = first;
    this.#open = open;
  }

  async live(): Promise<ZookeeperSession> {
    if (!this.current.ended.aborted) return this.current;
    if (this.#closed) throw over();
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

/** The library throws at an error code that it does not know, from where nobody can catch it. */
function guard(inside: Inside['connectionManager']): void {
  const read = inside.onSocketData;
  inside.onSocketData = (data) => {
    try {
      read.call(inside, data);
    } catch {
      inside.pendingBuffer = null;
      inside.socket?.destroy();
    }
  };
}

class Session implements ZookeeperSession {
  readonly #client: zookeeper.Client;
  readonly #inside: Inside['connectionManager'];
  readonly #ended = new AbortController();
  /** What waits for an answer is told when the session ends: the library forgets it. */
  readonly #waiting = new Set<(error: ZookeeperError) => void>();

  constructor(client: zookeeper.Client, inside: Inside['connectionManager']) {
    this.#client = client;
    this.#inside = inside;
    setMaxListeners(0, this.#ended.signal); // every lease and every waiter listens
    for (const event of ['expired', 'authenticationFailed']) client.on(event, () => this.#end());
  }

  get timeoutMs(): number {
    return this.#client.getSessionTimeout();
  }

  get ended(): AbortSignal {
    return this.#ended.signal;
  }

  async createPersistent(path: string): Promise<void> {
    await this.#ask<string>((done) => this.#client.create(path, zookeeper.CreateMode.PERSISTENT, done));
  }

  createEphemeralSequential(path: string): Promise<string> {
    return this.#ask((done) => this.#client.create(path, zookeeper.CreateMode.EPHEMERAL_SEQUENTIAL, done));
  }

  children(path: string): Promise<readonly string[]> {
    return this.#ask<string[]>((done) => this.#client.getChildren(path, done));
  }

  async creation(path: string, onChange?: () => void): Promise<number> {
    // `exists` would leave a watch on a node that is gone, for ever.
    const czxid = await this.#ask<Buffer>((done) => {
      const answer = (error: Error | zookeeper.Exception | null, _: Buffer, stat: zookeeper.Stat) =>
        done(error, stat?.czxid);
      if (onChange === undefined) this.#client.getData(path, answer);
      else this.#client.getData(path, onChange, answer);
    });
    return Number(czxid.readBigInt64BE());
  }

  async check(path: string): Promise<void> {
    await this.#ask((done) => this.#client.transaction().check(path, -1).commit(done));
  }

  async remove(path: string): Promise<void> {
    await this.#ask<void>((done) => this.#client.remove(path, (error) => done(error)));
  }

  async close(): Promise<void> {
    if (this.#ended.signal.aborted) return this.#cut();
    const { socket } = this.#inside;
    const gone = new Promise<void>((resolve) => {
      if (socket === undefined || socket.destroyed) return resolve();
      const timer = setTimeout(resolve, FAREWELL_MS);
      socket.once('close', () => {
        clearTimeout(timer);
        resolve();
      });
    });
    this.#client.close();
    this.#end();
    await gone;
    this.#cut();
  }

  #ask<T>(send: (done: Callback<T>) => void): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.#ended.signal.aborted) return reject(over());
      const settle = () => {
        clearTimeout(timer);
        this.#waiting.delete(fail);
      };
      const fail = (error: ZookeeperError) => {
        settle();
        reject(error);
      };
      const timer = setTimeout(
        () => {
          fail(new ZookeeperError('silent', 'ZooKeeper did not answer in time'));
          this.#inside.socket?.destroy();
        },
        Math.min(ANSWER_MS, this.timeoutMs / 3),
      );
      this.#waiting.add(fail);
      send((error, value) => {
        if (error) fail(failure(error));
        else {
          settle();
          resolve(value);
        }
      });
    });
  }

  #end(): void {
    if (this.#ended.signal.aborted) return;
    this.#ended.abort();
    for (const fail of [...this.#waiting]) fail(over());
  }

  #cut(): void {
    this.#inside.socket?.destroy();
    clearTimeout(this.#inside.connectTimeoutHandler ?? undefined);
  }
}

const over = () => new ZookeeperError('ended', 'the session with ZooKeeper is over');

function failure(error: Error | zookeeper.Exception): ZookeeperError {
  const { code } = error as zookeeper.Exception;
  return new ZookeeperError(FAILURES.get(code) ?? 'refused', String((error as Error).message ?? error));
}
