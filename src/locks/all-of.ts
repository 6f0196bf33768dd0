/**
 * Several resources at once, all or none.
 *
 *   acquire the first ──▶ the second … ──all granted──▶ held, until the earliest deadline
 *                            └──one not granted, or one lost meanwhile──▶ all released
 *
 * The resources are acquired in one order, so two callers with overlapping sets never wait for each other. Redisson's MultiLock needs
 * such an order from its callers.
 */
import { type Done, type Lease, type Lock, type NotAcquired, type ReleaseResult, whileHeld } from './lock.ts';
import { type AcquireOptions, type OptionsAndWork, optionsAndWork } from './options.ts';

/** Leases of several resources. It is lost as soon as one of them is. */
export interface LeaseOfAll extends Pick<Lease, 'signal' | 'deadlineMs' | 'release'>, AsyncDisposable {
  /** By resource, in the order of their acquisition. */
  readonly leases: ReadonlyMap<string, Lease>;
}

/**
 * @param resources duplicates count once
 * @param given options for each of them; `waitMs` is for all together
 * @throws LockOptionsError, and holds nothing then
 */
export async function acquireAll(
  lock: Lock,
  resources: Iterable<string>,
  given?: AcquireOptions,
): Promise<{ readonly kind: 'held'; readonly lease: LeaseOfAll } | NotAcquired> {
  const inOrder = [...new Set(resources)].sort();
  const checked = inOrder.map((resource) => lock.check(resource, given));
  const untilMs = performance.now() + (checked[0]?.waitMs ?? 0);
  const leases = new Map<string, Lease>();
  const lease = new Leases(leases);
  for (const resource of inOrder) {
    const waitMs = Math.max(0, untilMs - performance.now());
    const result = await lock.acquire(resource, { ...given, waitMs }).catch(async (defect) => {
      await lease.release();
      throw defect;
    });
    if (result.kind !== 'held') {
      const released = lease.release();
      if (result.kind !== 'aborted') await released;
      return result;
    }
    leases.set(resource, result.lease);
  }
  // Reads each lease: the common signal costs a listener for each, and most callers never read it.
  if (!inOrder.some((resource) => isOver(leases.get(resource)!))) return { kind: 'held', lease };
  await lease.release();
  return { kind: 'unavailable', reason: 'lease-lost' };
}

const isOver = ({ deadlineMs, signal }: Lease) => signal.aborted || performance.now() >= deadlineMs;

/** `using` for several resources. */
export async function usingAll<T>(
  lock: Lock,
  resources: Iterable<string>,
  ...given: OptionsAndWork<(lease: LeaseOfAll) => Promise<T>>
): Promise<Done<T> | NotAcquired> {
  const [options, work] = optionsAndWork(given);
  const result = await acquireAll(lock, resources, options);
  return result.kind === 'held' ? whileHeld(result.lease, work) : result;
}

class Leases implements LeaseOfAll {
  readonly leases: ReadonlyMap<string, Lease>;
  readonly #lost = new AbortController();
  readonly #lose = ({ target }: Event) => this.#lost.abort((target as AbortSignal).reason);
  #isWatched = false;
  #released: Promise<ReleaseResult> | undefined;

  constructor(leases: ReadonlyMap<string, Lease>) {
    this.leases = leases;
  }

  get signal(): AbortSignal {
    // Each signal fires when it is read after its deadline.
    for (const { signal } of this.leases.values()) {
      if (signal.aborted) this.#lost.abort(signal.reason);
      else if (!this.#isWatched) signal.addEventListener('abort', this.#lose, { once: true });
    }
    this.#isWatched = true;
    return this.#lost.signal;
  }

  get deadlineMs(): number {
    return Math.min(...[...this.leases.values()].map(({ deadlineMs }) => deadlineMs));
  }

  release(): Promise<ReleaseResult> {
    this.#released ??= this.#releaseAll();
    return this.#released;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.release();
  }

  /** @returns the worst result */
  async #releaseAll(): Promise<ReleaseResult> {
    const all = [...this.leases.values()].reverse();
    const results = await Promise.all(all.map((lease) => lease.release()));
    return (['lost', 'unknown'] as const).find((result) => results.includes(result)) ?? 'released';
  }
}
