/** What a lock reports, for logs and metrics. A hook that throws has no effect on the lock. */
import { PlainLease } from './kit/plain-lease.ts';
import type { AcquireResult, Lock, ReleaseResult } from './lock.ts';

export interface LockHooks {
  /** Receives failures of background work, which no caller waits for. `doing` is an operation's name in kebab case. */
  onError?(doing: string, error: unknown): void;
  /** An acquisition has ended, `waitedMs` after it began. */
  onAcquire?(event: { lock: string; resource: string; kind: AcquireResult['kind']; waitedMs: number }): void;
  /** A lease has ended, `heldMs` after it was granted. `lost` is reported when the signal fires, and never again at the release. */
  onEnd?(event: { lock: string; resource: string; ended: ReleaseResult; heldMs: number }): void;
}

/** The lock, reporting to the hooks. */
export function observed(lock: Lock, hooks: LockHooks): Lock {
  if (hooks.onAcquire === undefined && hooks.onEnd === undefined) return lock;
  return {
    name: lock.name,
    check: (resource, options) => lock.check(resource, options),
    async acquire(resource, options) {
      const startMs = performance.now();
      const result = await lock.acquire(resource, options);
      const nowMs = performance.now();
      const event = { lock: lock.name, resource, kind: result.kind, waitedMs: nowMs - startMs };
      quietly(() => hooks.onAcquire?.(event));
      if (result.kind !== 'held' || !(result.lease instanceof PlainLease)) return result;
      const { lease } = result;
      const { onEnd } = lease;
      lease.onEnd = (ended) => {
        onEnd(ended);
        const heldMs = performance.now() - nowMs;
        quietly(() => hooks.onEnd?.({ lock: lock.name, resource, ended, heldMs }));
      };
      return result;
    },
    close: () => lock.close(),
  };
}

function quietly(call: () => void): void {
  try {
    call();
  } catch {}
}
