/**
 * How Redis wakes a process that waits for a lock: one channel for each process, on a connection of its own that is
 * made when somebody waits for the first time.
 *
 *   arm ──▶ ask, which puts the channel in line ──▶ wait ──message──▶ ask again
 *                                                    └──after so many milliseconds, whatever was heard──▶ ask again
 *
 * A message names the lock. One that comes between the question and the wait is not missed: the bell was armed before.
 */
import { randomUUID } from 'node:crypto';
import type { Redis } from 'ioredis';
import type { Waiter } from './waiting-lock.ts';

/** A waiter asks without being woken while the subscription is not there; it is not waited for longer than this. */
const SUBSCRIBE_MS = 200;
/** After a subscription that failed, in milliseconds. */
const AGAIN_MS = 1_000;

/** Rings for one waiter; a process has one for a lock. */
export interface Bell {
  /** Until it rings, or rang since the last wait; at most so many milliseconds, and not beyond the waiter's signal. */
  wait(ms: number, waiter: Waiter): Promise<void>;
  disarm(): void;
}

export class Bells {
  readonly #redis: Redis;
  readonly #onError: (doing: string, error: unknown) => void;
  readonly #channel = `stampede:wake:${randomUUID()}`;
  readonly #ring = new Map<string, () => void>();
  #subscriber: Redis | null = null;
  #subscribed: Promise<void> | null = null;
  #listening = false;
  #closed = false;
  #storeRetryMs = 0;

  constructor(redis: Redis, onError: (doing: string, error: unknown) => void) {
    this.#redis = redis;
    this.#onError = onError;
  }

  /** This process's channel; empty while it cannot be heard. */
  get channel(): string {
    return this.#listening && this.#subscriber?.status === 'ready' ? this.#channel : '';
  }

  /** Listens from now on, if that is possible soon. @returns whether there is a channel now */
  async listen(waiter: Waiter): Promise<boolean> {
    if (!this.#listening && !this.#closed && performance.now() > this.#storeRetryMs) {
      this.#subscribed ??= this.#subscribe();
      await waiter.pause(SUBSCRIBE_MS, this.#subscribed);
    }
    return this.channel !== '';
  }

  arm(lock: string): Bell {
    let rang = false;
    let wake = () => {};
    const ring = () => {
      rang = true;
      wake();
    };
    this.#ring.set(lock, ring);
    return {
      async wait(ms, waiter) {
        if (!rang) {
          const heard = new Promise<void>((resolve) => {
            wake = resolve;
          });
          await waiter.pause(ms, heard);
        }
        rang = false;
      },
      disarm: () => {
        if (this.#ring.get(lock) === ring) this.#ring.delete(lock);
      },
    };
  }

  close(): void {
    this.#closed = true;
    this.#subscriber?.disconnect();
  }

  async #subscribe(): Promise<void> {
    // ioredis's own way of subscribing anew leaves a rejection unhandled when that connection, too, is lost: it would end
    // the process.
    const subscriber = this.#redis.duplicate({
      lazyConnect: true,
      enableOfflineQueue: true,
      autoResubscribe: false,
    });
    subscriber.on('ready', () => {
      if (this.#listening) subscriber.subscribe(this.#channel).catch(() => subscriber.disconnect(true));
    });
    subscriber.on('error', (error) => this.#onError('redis-subscriber-connection', error));
    subscriber.on('message', (_channel, lock) => this.#ring.get(lock)?.());
    this.#subscriber = subscriber;
    try {
      await subscriber.subscribe(this.#channel);
      this.#listening = true;
    } catch (error) {
      subscriber.disconnect();
      this.#subscribed = null;
      this.#storeRetryMs = performance.now() + AGAIN_MS;
      if (!this.#closed) this.#onError('redis-subscribe', error);
    }
  }
}
