/**
 * A lock that an asynchronous context may enter again: a function that holds a resource calls another one that needs it too.
 *
 *   using ──held by this context, and not lost──▶ work under the same lease
 *     └──▶ acquired ──▶ work ──its nested calls are over──▶ released
 *
 * The context is that of AsyncLocalStorage: what `work` calls and starts, and nothing beside it. The lock's server sees one acquisition,
 * so this works with every lock. (`owner` of the lock `redis` is reentrant across processes.)
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { type Done, type Lease, type Lock, type NotAcquired, using } from './lock.ts';
import { type AcquireOptions, type OptionsAndWork, optionsAndWork } from './options.ts';

export type Using = <T>(
  resource: string,
  ...given: OptionsAndWork<(lease: Lease) => Promise<T>>
) => Promise<Done<T> | NotAcquired>;

interface Held {
  readonly lease: Lease;
  readonly mode: AcquireOptions['mode'] | undefined;
  /** Nested work that is not over: the lease outlives it. */
  readonly nested: Set<Promise<unknown>>;
  isOver: boolean;
}

/**
 * `using` for one lock. Nested options other than `mode` and `signal` have no effect. Within `read`, `write` is not nested: it waits for
 * this context's own lease, and is `contended`.
 */
export function reentrant(lock: Lock): Using {
  const context = new AsyncLocalStorage<ReadonlyMap<string, Held>>();

  return async (resource, ...given) => {
    const [options, work] = optionsAndWork(given);
    const outer = context.getStore();
    const held = outer?.get(resource);
    if (held !== undefined && isWithin(held, options)) {
      if (options.signal?.aborted) return { kind: 'aborted' };
      const nested = workUnder(held.lease, work);
      held.nested.add(nested);
      return nested.finally(() => held.nested.delete(nested));
    }
    return using(lock, resource, options, async (lease) => {
      const own: Held = { lease, mode: options.mode, nested: new Set(), isOver: false };
      try {
        return await context.run(new Map(outer).set(resource, own), () => work(lease));
      } finally {
        while (own.nested.size > 0) await Promise.allSettled(own.nested);
        own.isOver = true; // what the work left behind acquires the lock again
      }
    });
  };
}

const isWithin = ({ lease, mode = 'write', isOver }: Held, options: AcquireOptions): boolean =>
  !isOver && !lease.signal.aborted && (mode === 'write' || options.mode === 'read');

/** The lease stays held: `ended` says whether it was, until the end of this work. */
async function workUnder<T>(lease: Lease, work: (lease: Lease) => Promise<T>): Promise<Done<T>> {
  const value = await work(lease);
  return { kind: 'done', value, ended: lease.signal.aborted ? 'lost' : 'released' };
}
