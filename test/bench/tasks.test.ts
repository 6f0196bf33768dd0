/** Claims of tasks under a lock, as the suite tasks measures them. */
import { it } from 'vitest';
import { claimsUnderLock } from '../../bench/suites/tasks/claims-under-lock.ts';
import type { Lock } from '../../src/locks/lock.ts';
import { claimByThree, openLedger, openProcess } from '../support/outbox.ts';
import { openScene } from '../support/scene.ts';

const scene = openScene();

/** A lock that fails: everybody holds it, always. */
const noLock: Lock = {
  name: 'none',
  check: () => ({ ttlMs: 1, waitMs: 0 }),
  async acquire(resource) {
    const lease = { resource, token: '', fencingToken: null, signal: new AbortController().signal };
    const release = async () => 'released' as const;
    const ended = { deadlineMs: Infinity, release, [Symbol.asyncDispose]: async () => {} };
    return { kind: 'held', lease: { ...lease, ...ended } };
  },
  async close() {},
};

it('lock: each task is claimed and handled once, also when the lock fails', async () => {
  const around = claimsUnderLock({ lockTtlMs: 10_000, lockWaitMs: 500 });
  const open = () => {
    const process = openProcess(scene.stores.databaseUrl);
    scene.kept({ [Symbol.asyncDispose]: () => process.close() });
    return process;
  };
  await claimByThree(scene.stores, await openLedger(scene.stores), open, (claim) => around(claim, noLock));
});
