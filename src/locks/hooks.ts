/** What a lock reports, for logs and metrics. A hook that throws has no effect on the lock. */
import type { AcquireResult, Lease, Lock, ReleaseResult } from './lock.ts';

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
      const event = { lock: lock.name, resource, kind: result.kind, waitedMs: performance.now() - startMs };
      quietly(() => hooks.onAcquire?.(event));
      if (result.kind !== 'held' || hooks.onEnd === undefined) return result;
      return { kind: 'held', lease: new ObservedLease(lock.name, result.lease, hooks) };
    },
    close: () => lock.close(),
  };
}

function quietly(call: () => void): void {
  try {
    call();
  } catch {}
}

class ObservedLease implements Lease {
  readonly #lease: Lease;
  readonly #report: (ended: ReleaseResult) => void;

  constructor(lock: string, lease: Lease, hooks: LockHooks) {
    this.#lease = lease;
    const startMs = performance.now();
    let hasEnded = false;
    this.#report = (ended) => {
      if (hasEnded) return;
      hasEnded = true;
      const { resource } = lease;
      quietly(() => hooks.onEnd?.({ lock, resource, ended, heldMs: performance.now() - startMs }));
    };
    lease.signal.addEventListener('abort', () => this.#report('lost'), { once: true });
  }

  get resource(): string {
    return this.#lease.resource;
  }
  get token(): string {
    return this.#lease.token;
  }
  get fencingToken(): number | null {
    return this.#lease.fencingToken;
  }
  get signal(): AbortSignal {
    return this.#lease.signal;
  }
  get deadlineMs(): number {
    return this.#lease.deadlineMs;
  }

  async release(): Promise<ReleaseResult> {
    const ended = await this.#lease.release();
    this.#report(ended);
    return ended;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }
}
