/** The frame of the simple rungs in one Redis: every contender polls, without a local queue. */
import { failureOf } from '../clients.ts';
import type { Lease, Lock } from '../lock.ts';
import { Compensations } from './compensations.ts';
import { acceptLease, poll } from './poll.ts';
import { waitingLock } from './waiting-lock.ts';

/** Makes one attempt. @returns null if another contender holds the lock @throws RequestError */
export type TryAcquire = (
  resource: string,
  ttlMs: number,
  compensations: Compensations,
) => Promise<Lease | null>;

export function rungLock(name: string, tryAcquire: TryAcquire, onClose: () => void = () => {}): Lock {
  const compensations = new Compensations();
  return waitingLock({
    name,
    queue: null,
    acquire: (resource, { ttlMs }, waiter) =>
      poll(waiter, async () => {
        try {
          const lease = await tryAcquire(resource, ttlMs, compensations);
          return lease === null ? { kind: 'retry' } : await acceptLease(lease, waiter, 'redis-slow');
        } catch (error) {
          return { kind: 'unavailable', reason: failureOf(error).reason };
        }
      }),
    async close() {
      onClose();
      await compensations.close();
    },
  });
}
