/**
 * What the locks need of the clients of their servers. Whoever opens a lock passes them in: this folder imports no client, and nothing
 * else outside itself.
 */
import type pg from 'pg';

export type Reply = string | number | null | readonly Reply[];
export type Call<R extends Reply = Reply> = (...keysAndArguments: (string | number)[]) => Promise<R>;

/** A client of one Redis, of the primary that Sentinels name, or of a cluster. Its requests throw `RequestError`, and defects as they are. */
export interface RedisClient {
  /** A script may name the keys of one hash tag only, and a server knows only the subscribers that it has itself. */
  readonly isCluster: boolean;
  /** Sends a command. Its first argument, if any, is the key that decides about the server. It is sent at most once. */
  send(command: string, ...keyAndArguments: (string | number)[]): Promise<unknown>;
  /** Prepares a script of lua/, such as `lock/renew`. Its calls name the keys first. */
  script<R extends Reply>(name: string, numberOfKeys: number): Call<R>;
  /** Prepares a connection that receives the messages of a channel. Nothing connects before `subscribe`. */
  subscriber(channel: string, on: SubscriberEvents): Subscriber;
  /** The server that has a key, at this moment. @throws RequestError when it is not connected */
  serverOf(key: string): RedisServerOfKey;
  /** Opens the same again, for the commands of one user. */
  another(onError: (error: Error) => void): Promise<RedisClient>;
  /** Calls back after each reconnection. */
  onReady(callback: () => void): void;
  close(): Promise<void>;
}

export interface SubscriberEvents {
  message(text: string): void;
  error(error: Error): void;
}

/** Once it has subscribed, it does so again after each reconnection. */
export interface Subscriber {
  /** Whether messages arrive now. */
  readonly isReady: boolean;
  subscribe(): Promise<void>;
  close(): void;
}

export interface RedisServerOfKey {
  /** How often its connection was lost. Afterwards another server may answer. */
  readonly connections: number;
  /** Waits for replicas to have what this connection wrote. @returns how many have it */
  wait(replicas: number, timeoutMs: number): Promise<number>;
  /** Writes a key that nothing reads, and that ends at once. @returns false: the key's slot is moving from this server, or has moved */
  mark(key: string): Promise<boolean>;
}

/** One of the independent servers of `redlock`. */
export type RedlockServer = Pick<RedisClient, 'send' | 'script' | 'onReady' | 'close'>;

export interface PostgresClient {
  readonly pool: pg.Pool;
  /** What an error of the pool means. @throws the error itself when it is a defect */
  explain(error: unknown): { readonly kind: string; readonly reason: string };
}

/** A request of a lock failed. `cause` is the error of the client. */
export class RequestError extends Error {
  override readonly name = 'RequestError';
  readonly code = 'ERR_STAMPEDE_LOCK_REQUEST';
  /** Whether the server may have executed it, or may yet. Otherwise it has no effect. */
  readonly isUnknown: boolean;
  readonly reason: string;

  constructor({ kind, reason }: ReturnType<PostgresClient['explain']>, cause?: unknown) {
    super(`the request failed: ${reason}`, { cause });
    this.isUnknown = kind === 'unknown';
    this.reason = reason;
  }
}

/** @throws the error itself when it is a defect */
export function failureOf(error: unknown): RequestError {
  if (error instanceof RequestError) return error;
  throw error;
}
