/**
 * The waiting of a lock whose server is asked again and again, and what has to be tidied up afterwards.
 *
 *   turn in this process ──▶ ask ──held by another──▶ pause ──▶ ask …      until waitMs is over: contended
 *                             │ got it      │ the answer was lost
 *                             ▼             ▼
 *                           held       unavailable; what the request may have taken is given back until the server
 *                                      has confirmed it, or the TTL is over
 *
 * A lock that keeps places at its server (`keepsPlace`) asks with one token for as long as it waits, gives the place
 * back when it stops waiting, and lets every contender of this process ask for itself, since the server knows who
 * is next. Any other lock asks with a fresh token each time, so that a late release of one try cannot end the next.
 */
import { randomUUID } from 'node:crypto';
import { classifyRedisError } from '../store/redis.ts';
import { localQueue } from './local-queue.ts';
import type { AcquireOptions, AcquireResult, Lock } from './lock.ts';
import { RenewingLease } from './renewing-lease.ts';

/** One contender's claim on a resource. */
export interface Claim {
  readonly resource: string;
  readonly token: string;
  readonly options: AcquireOptions;
}

export type Answer =
  | { readonly kind: 'held'; readonly fencingToken: number | null }
  /** Somebody else is there; `extraMs` lengthens the pause before the next question. */
  | { readonly kind: 'wait'; readonly extraMs?: number }
  /** The server itself saw to it that nothing stays held. */
  | { readonly kind: 'unavailable'; readonly reason: string };

export interface PolledServer {
  readonly name: string;
  readonly keepsPlace: boolean;
  /** Asks once. What it throws says that the claim may be held all the same. */
  ask(claim: Claim): Promise<Answer>;
  /** @returns whether the claim was still held; throws when that is not known */
  renew(claim: Claim): Promise<boolean>;
  /** Gives back what the claim holds and the place where it waits. @returns whether it was held */
  release(claim: Claim): Promise<boolean>;
  /** Ends the connections of the lock's own. */
  close?(): void;
}

/** Between two questions: jittered, growing, in milliseconds. */
const POLL_FIRST_MS = 2;
const POLL_MOST_MS = 25;
/** Between two tries to give back what a request without an answer may have taken, in milliseconds. */
const SETTLE_EVERY_MS = 100;

type Asked =
  | Exclude<AcquireResult, { kind: 'held' }>
  | { readonly kind: 'held'; readonly lease: RenewingLease };

export function polledLock(server: PolledServer): Lock {
  const queue = localQueue();
  const held = new Set<RenewingLease>();
  /** Ends of the pauses that somebody sleeps in. */
  const pauses = new Set<() => void>();
  /** Acquisitions and settlements that a close waits for. */
  const underWay = new Set<Promise<unknown>>();
  let closed = false;

  function track<T>(work: Promise<T>): Promise<T> {
    underWay.add(work);
    const done = () => underWay.delete(work);
    work.then(done, done);
    return work;
  }

  /** Sleeps, but not beyond the signal or the close. */
  const pause = (ms: number, signal?: AbortSignal) =>
    new Promise<void>((resolve) => {
      const end = () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', end);
        pauses.delete(end);
        resolve();
      };
      const timer = setTimeout(end, ms);
      signal?.addEventListener('abort', end);
      pauses.add(end);
      if (closed || signal?.aborted) end();
    });

  /** Gives back, in the background, what the claim may hold; after its TTL there is nothing left to give back. */
  function settle(claim: Claim): void {
    const untilMs = performance.now() + claim.options.ttlMs;
    const settling = async () => {
      for (;;) {
        const done = await server.release(claim).then(
          () => true,
          () => false,
        );
        if (done || closed || performance.now() > untilMs) return;
        await pause(SETTLE_EVERY_MS);
      }
    };
    void track(settling());
  }

  async function release(claim: Claim): Promise<boolean> {
    try {
      return await server.release(claim);
    } catch (error) {
      settle(claim);
      throw error;
    }
  }

  /** One question. */
  async function ask(claim: Claim): Promise<Asked | { readonly kind: 'wait'; readonly extraMs?: number }> {
    const { resource, token, options } = claim;
    const askedMs = performance.now();
    let answer: Answer;
    try {
      answer = await server.ask(claim);
    } catch (error) {
      settle(claim);
      return { kind: 'unavailable', reason: classifyRedisError(error).reason };
    }
    if (answer.kind !== 'held') return answer;
    const lease = new RenewingLease(
      { renew: () => server.renew(claim), release: () => release(claim) },
      { resource, token, fencingToken: answer.fencingToken, ttlMs: options.ttlMs, askedMs },
    );
    if (lease.signal.aborted) {
      settle(claim); // the answer took longer than the lease
      return { kind: 'unavailable', reason: `${server.name}-slow` };
    }
    if (!closed && !options.signal?.aborted) return { kind: 'held', lease };
    await lease.release();
    return closed ? CLOSED : { kind: 'aborted' };
  }

  async function poll(claim: Claim, untilMs: number): Promise<Asked> {
    const { signal } = claim.options;
    for (let pollMs = POLL_FIRST_MS; ; pollMs = Math.min(pollMs * 1.6, POLL_MOST_MS)) {
      if (closed) return CLOSED;
      if (signal?.aborted) return { kind: 'aborted' };
      const fresh = server.keepsPlace ? claim : { ...claim, token: randomUUID() };
      const answer = await ask(fresh);
      if (answer.kind !== 'wait') return answer;
      const leftMs = untilMs - performance.now();
      if (leftMs <= 0) return { kind: 'contended' };
      const pauseMs = pollMs * (0.5 + Math.random()) + (answer.extraMs ?? 0);
      await pause(Math.min(leftMs, pauseMs), signal);
    }
  }

  async function acquire(resource: string, options: AcquireOptions): Promise<AcquireResult> {
    const untilMs = performance.now() + options.waitMs;
    const { waitMs, signal } = options;
    const leave = server.keepsPlace ? () => {} : await queue.enter(resource, waitMs, signal);
    if (leave === null) return { kind: signal?.aborted ? 'aborted' : 'contended' };
    const claim = { resource, token: randomUUID(), options };
    let lease: RenewingLease | undefined;
    try {
      const result = await poll(claim, untilMs);
      if (result.kind === 'held') lease = result.lease;
      else if (server.keepsPlace && (result.kind !== 'unavailable' || result === CLOSED)) {
        await release(claim).catch(() => {});
      }
      return result;
    } finally {
      if (lease === undefined) leave();
      else hold(lease, leave);
    }
  }

  function hold(lease: RenewingLease, leave: () => void): void {
    held.add(lease);
    lease.onEnd = () => {
      held.delete(lease);
      leave();
    };
  }

  return {
    name: server.name,
    acquire: (resource, options) => (closed ? Promise.resolve(CLOSED) : track(acquire(resource, options))),
    async close() {
      closed = true;
      for (const end of [...pauses]) end();
      await Promise.all([...held].map((lease) => lease.release()));
      while (underWay.size > 0) await Promise.allSettled([...underWay]);
      server.close?.();
    },
  };
}

const CLOSED = { kind: 'unavailable', reason: 'lock-closed' } as const;
