/**
 * Wakes a process that waits for a lock in Redis: pub/sub on one channel per process, over a dedicated connection that the
 * first waiter opens.
 *
 *   listen ──▶ request, which enqueues the channel ──▶ wait ──message──▶ request again
 *                                                        └──timeout──▶ request again
 *
 * A message names the lock. `listen` precedes the request, so a message that arrives before `wait` is not missed.
 */
import { randomUUID } from 'node:crypto';
import type { RedisClient, Subscriber } from '../clients.ts';
import type { Waiter } from './waiting-lock.ts';

/** Longest wait for the first subscription, in milliseconds. Until it succeeds, waiters poll. */
const SUBSCRIBE_MS = 200;
/** Pause after a failed subscription, in milliseconds. */
const RESUBSCRIBE_MS = 1_000;

/** Receives the messages for one lock. A message wakes all listeners of its lock. */
export interface Listener {
  /** Pauses the waiter until a message; not at all if one arrived since the last wait. @returns see `Waiter` */
  wait(ms: number, waiter: Waiter): Promise<boolean>;
  close(): void;
}

export class Notifications {
  readonly #redis: RedisClient;
  readonly #onError: (doing: string, error: unknown) => void;
  readonly #channel = `stampede:notify:${randomUUID()}`;
  readonly #notify = new Map<string, Set<() => void>>();
  #subscriber: Subscriber | null = null;
  #subscribing: Promise<void> | null = null;
  #isClosed = false;
  #retryAtMs = 0;

  constructor(redis: RedisClient, onError: (doing: string, error: unknown) => void) {
    this.#redis = redis;
    this.#onError = onError;
  }

  /** This process's channel; empty while it cannot receive messages. */
  get channel(): string {
    return this.#subscriber?.isReady ? this.#channel : '';
  }

  /** Subscribes, within a bounded time. @returns whether the channel can receive messages now */
  async subscribe(waiter: Waiter): Promise<boolean> {
    if (this.channel === '' && !this.#isClosed && performance.now() > this.#retryAtMs) {
      this.#subscribing ??= this.#connect();
      await waiter.pause(SUBSCRIBE_MS, this.#subscribing);
    }
    return this.channel !== '';
  }

  listen(lock: string): Listener {
    let isNotified = false;
    let wake = () => {};
    const notify = () => {
      isNotified = true;
      wake();
    };
    const listeners = this.#notify.get(lock) ?? new Set();
    this.#notify.set(lock, listeners.add(notify));
    return {
      async wait(ms, waiter) {
        const notified = new Promise<void>((resolve) => {
          wake = resolve;
        });
        if (isNotified) wake();
        const isWaiting = await waiter.pause(ms, notified);
        isNotified = false;
        return isWaiting;
      },
      close: () => {
        listeners.delete(notify);
        if (listeners.size === 0 && this.#notify.get(lock) === listeners) this.#notify.delete(lock);
      },
    };
  }

  close(): void {
    this.#isClosed = true;
    this.#subscriber?.close();
  }

  async #connect(): Promise<void> {
    const subscriber = this.#redis.subscriber(this.#channel, {
      message: (lock) => this.#notify.get(lock)?.forEach((notify) => void notify()),
      error: (error) => this.#onError('redis-subscriber-connection', error),
    });
    this.#subscriber = subscriber;
    try {
      await subscriber.subscribe();
    } catch (error) {
      subscriber.close();
      this.#subscribing = null;
      this.#retryAtMs = performance.now() + RESUBSCRIBE_MS;
      if (!this.#isClosed) this.#onError('redis-subscribe', error);
    }
  }
}
