import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { AcquireResult } from '../../src/locks/lock.ts';
import { create } from '../../src/locks/redis-wait.ts';
import { held, once, renewed, untilAvailable, watchLoss } from '../contract/lock-steps.ts';
import { reached } from '../support/caller-clients.ts';
import { type LockProcess, openReplicated, type Replicated, waitingFor } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';

describe('the replicas', () => {
  let pair: Replicated;
  let a: LockProcess;
  let look: Redis;
  beforeEach(async () => {
    pair = await openReplicated(waitingFor(1));
    a = await reached(() => pair.process());
    look = new Redis(pair.primary.port).on('error', () => {});
  });
  afterEach(async () => {
    look?.disconnect();
    await a?.close();
    await pair?.close();
  });
  const tooFew = { kind: 'unavailable', reason: 'redis-too-few-replicas' };
  const answer = (resource: string) =>
    untilAvailable<AcquireResult>(() => a.lock.acquire(resource, once), tooFew.reason);

  it('that are stopped make it unavailable, and nothing stays held', async () => {
    process.kill(pair.replicas[0]!.pid, 'SIGSTOP');
    // Many at once: they share one WAIT, or two.
    const resources = Array.from({ length: 30 }, (_, i) => `stopped-${i}`);
    const results = await Promise.all(resources.map(answer));
    for (const result of results) expect(result).toEqual(tooFew);
    await expect.poll(() => look.keys('stampede:*:lock')).toEqual([]);
    process.kill(pair.replicas[0]!.pid, 'SIGCONT');
    await (await held(a.lock, 'stopped-1')).release();
  });

  it('must acknowledge renewals, or the lease is lost in time', async () => {
    const lease = await held(a.lock, 'renewal', { ttlMs: 12_000 });
    await renewed(lease);
    pair.replication[0]!.set('black-hole');
    const { deadlineMs } = lease;
    const loss = watchLoss(lease);
    await expect.poll(() => loss.lostMs).toBeLessThan(Number.POSITIVE_INFINITY);
    expect(lease.deadlineMs).toBeLessThanOrEqual(deadlineMs); // no later renewal moved it
    expect(await look.get('stampede:{renewal}:lock')).toBe(lease.token); // the primary alone had renewed it
  });

  it('do not acknowledge writes of an earlier connection', async () => {
    // The connection breaks during WAIT; WAIT on the new one would count the replica at once.
    process.kill(pair.replicas[0]!.pid, 'SIGSTOP');
    const acquiring = a.lock.acquire('reconnected', once);
    await sleep(60);
    await look.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    expect((await acquiring).kind).toBe('unavailable');
    await expect.poll(() => look.get('stampede:{reconnected}:lock')).toBeNull();
  });
});

it('does not open without the number of replicas', async () => {
  const refusal = 'redis-wait needs the number of replicas that must have a lease';
  await expect(waitingFor(0)({ redis: {} as never, onError: () => {} })).rejects.toThrow(refusal);
  await expect(create({ redis: {} as never, onError: () => {} })).rejects.toThrow(refusal);
});

describe('several replicas', () => {
  const trio = opened(() => openReplicated(waitingFor(2), 3));

  it('that are disconnected still count', async () => {
    const a = await reached(() => trio.process());
    process.kill(trio.replicas[0]!.pid, 'SIGCONT');
    for (const link of trio.replication.slice(1)) link.set('refuse');
    const primary = new Redis(trio.primary.port);
    await expect.poll(() => primary.info('replication')).toContain('connected_slaves:1');
    primary.disconnect();
    expect((await a.lock.acquire('one of three', once)).kind).toBe('unavailable');
    for (const link of trio.replication) link.set('pass');
    await (await held(a.lock, 'three of three')).release();
    await a.close();
  });
});
