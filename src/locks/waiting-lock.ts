/**
 * What locks have in common that renew their leases and can be waited for:
 *
 *   acquire ──▶ local turn (where contenders of one process queue here) ──▶ ask ──▶ held ──over──▶ the turn ends
 *                 └──────────── waitMs over, aborted, closed ────────────────┴──▶ how the wait ended
 *
 * A waiter has one signal, which fires with its caller's own and when the lock is closed. (`AbortSignal.any` on the
 * long-lived signal of a lock keeps about 60 bytes for every call: measured, Node 20.)
 */
import type { LocalQueue } from './local-queue.ts';
import type { AcquireOptions, AcquireResult, Lock } from './lock.ts';
import type { RenewingLease } from './renewing-lease.ts';

export type Refusal = Exclude<AcquireResult, { kind: 'held' }>;
export type Asked = Refusal | { readonly kind: 'held'; readonly lease: RenewingLease };

export interface Waiter {
  readonly signal: AbortSignal;
  /** On `performance.now()`'s clock. */
  readonly untilMs: number;
  /** How the wait ended, when no lock came of it. */
  ended(): Refusal;
}

export interface WaitingLock {
  readonly name: string;
  /** Null where the lock's server keeps the order of all contenders. */
  readonly queue: LocalQueue | null;
  /** Asks the lock's server, until it is held or the waiter is done with waiting. */
  ask(resource: string, options: AcquireOptions, waiter: Waiter): Promise<Asked>;
  /** After the last lease was given back. */
  close(): Promise<void>;
}

export function waitingLock({ name, queue, ask, close }: WaitingLock): Lock {
  const waiting = new Set<AbortController>();
  const held = new Set<RenewingLease>();
  let closed = false;

  function hold(lease: RenewingLease, leave: () => void): void {
    const ended = lease.onEnd;
    held.add(lease);
    lease.onEnd = () => {
      held.delete(lease);
      ended();
      leave();
    };
  }

  async function inTurn(resource: string, options: AcquireOptions, waiter: Waiter): Promise<AcquireResult> {
    const leave = queue === null ? () => {} : await queue.enter(resource, options.waitMs, waiter.signal);
    if (leave === null) return waiter.ended();
    let result: Asked | undefined;
    try {
      if (waiter.signal.aborted) return waiter.ended();
      result = await ask(resource, options, waiter);
      return result;
    } finally {
      if (result?.kind === 'held') hold(result.lease, leave);
      else leave();
    }
  }

  return {
    name,
    async acquire(resource, options) {
      const { signal, waitMs } = options;
      const end = new AbortController();
      const abort = () => end.abort();
      if (closed || signal?.aborted) abort();
      signal?.addEventListener('abort', abort, { once: true });
      waiting.add(end);
      const ended = (): Refusal => {
        if (signal?.aborted) return { kind: 'aborted' };
        return closed ? { kind: 'unavailable', reason: 'closed' } : { kind: 'contended' };
      };
      try {
        const untilMs = performance.now() + waitMs;
        return await inTurn(resource, options, { signal: end.signal, untilMs, ended });
      } finally {
        signal?.removeEventListener('abort', abort);
        waiting.delete(end);
      }
    },
    async close() {
      closed = true;
      for (const end of [...waiting]) end.abort();
      await Promise.all([...held].map((lease) => lease.release()));
      await close();
    },
  };
}

/** What a promise came to, or null when the signal fired before that. */
export function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T | null> {
  return new Promise((resolve, reject) => {
    const give = () => resolve(null);
    const done = () => signal.removeEventListener('abort', give);
    promise.finally(done).then(resolve, reject);
    if (signal.aborted) give();
    else signal.addEventListener('abort', give, { once: true });
  });
}
