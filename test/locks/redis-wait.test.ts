import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { startRedisServer } from '../../src/local/redis-server.ts';
import { create } from '../../src/locks/redis-wait.ts';
import { watchLoss } from '../contract/lock-steps.ts';
import { eventually } from '../support/client.ts';
import { type GroupProcess, openReplicated, processOnOne, type Replicated } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';
import { commonChecks, held } from './lock-checks.ts';

/** Acquires a free lock. Repeats on a busy machine, where a healthy replica may miss the lock's time limit. */
const heldSoon = (...args: Parameters<typeof held>) => vi.waitFor(() => held(...args), 5_000);

describe('the lock that waits for replicas', () => {
  commonChecks(() => openReplicated(create));
});

describe('the replicas', () => {
  let pair: Replicated;
  let a: GroupProcess;
  let look: Redis;
  beforeEach(async () => {
    pair = await openReplicated(create);
    a = await pair.process();
    look = new Redis(pair.primary.port).on('error', () => {});
  });
  afterEach(async () => {
    look?.disconnect();
    await a?.close();
    await pair?.close();
  });
  const tooFew = { kind: 'unavailable', reason: 'redis-too-few-replicas' };
  const options = { ttlMs: 20_000, waitMs: 0 };

  it('have the lease when it is held', async () => {
    const replica = new Redis(pair.replicas[0]!.port);
    for (let i = 0; i < 200; i++) {
      const lease = await heldSoon(a.lock, `there-${i}`);
      expect(await replica.get(`stampede:{there-${i}}:lock`)).toBe(lease.token);
      void lease.release();
    }
    replica.disconnect();
  });

  it('that are stopped make it unavailable, and nothing stays held', async () => {
    process.kill(pair.replicas[0]!.pid, 'SIGSTOP');
    // Many at once: they share one WAIT, or two.
    const resources = Array.from({ length: 30 }, (_, i) => `stopped-${i}`);
    const results = await Promise.all(resources.map((resource) => a.lock.acquire(resource, options)));
    for (const result of results) expect(result).toEqual(tooFew);
    expect(await look.keys('stampede:*:lock')).toEqual([]);
    process.kill(pair.replicas[0]!.pid, 'SIGCONT');
    await (await heldSoon(a.lock, 'stopped-1')).release();
  });

  it('that are disconnected make it unavailable, and nothing stays held', async () => {
    pair.replication[0]!.set('black-hole');
    expect(await a.lock.acquire('cut', options)).toEqual(tooFew);
    pair.replication[0]!.set('refuse');
    await sleep(200);
    expect(await look.info('replication')).toContain('connected_slaves:0');
    expect(await a.lock.acquire('cut', options)).toEqual(tooFew);
    expect(await look.get('stampede:{cut}:lock')).toBeNull();
  });

  it('must acknowledge renewals, or the lease is lost in time', async () => {
    const lease = await heldSoon(a.lock, 'renewal', { ttlMs: 900 });
    await sleep(1_500);
    expect(lease.signal.aborted).toBe(false);
    pair.replication[0]!.set('black-hole');
    const startMs = performance.now();
    await new Promise((resolve) => lease.signal.addEventListener('abort', resolve));
    expect(lease.deadlineMs).toBeLessThan(startMs + 900); // no later renewal moved it
    expect(await look.get('stampede:{renewal}:lock')).toBe(lease.token); // the primary alone had renewed it
  });

  it('do not acknowledge writes of an earlier connection', async () => {
    // The connection breaks during WAIT; WAIT on the new one would count the replica at once.
    process.kill(pair.replicas[0]!.pid, 'SIGSTOP');
    const acquiring = a.lock.acquire('reconnected', options);
    await sleep(60);
    await look.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    expect((await acquiring).kind).toBe('unavailable');
    await expect.poll(() => look.get('stampede:{reconnected}:lock')).toBeNull();
  });

  it('admit no second holder when the primary dies and one is promoted', async () => {
    const [promoted] = pair.replicas;
    // On a busy machine the first acknowledgement may come too late.
    const probe = async () => {
      const result = await a.lock.acquire('probe', { ttlMs: 2_000, waitMs: 0 });
      if (result.kind === 'held') await result.lease.release();
      return result.kind;
    };
    await expect.poll(probe).toBe('held');
    const lease = await held(a.lock, 'failover', { ttlMs: 5_000 });
    const loss = watchLoss(lease);
    await sleep(2_000); // renewed once
    pair.replication[0]!.set('black-hole'); // the replica receives nothing beyond what it acknowledged
    await pair.primary.kill();
    const replica = new Redis(promoted!.port);
    await replica.replicaof('NO', 'ONE');
    expect(await replica.get('stampede:{failover}:lock')).toBe(lease.token);
    const b = await processOnOne(promoted!.port, create);
    expect((await b.lock.acquire('failover', { ttlMs: 2_000, waitMs: 0 })).kind).toBe('contended');
    const folder = await mkdtemp(path.join(tmpdir(), 'stampede-test-wait-'));
    const args = ['--appendonly', 'no', '--replicaof', '127.0.0.1', String(promoted!.port)];
    const second = await startRedisServer({ folder, args });
    const next = await eventually(
      () => b.lock.acquire('failover', { ttlMs: 2_000, waitMs: 1_000 }),
      (result) => result.kind === 'held', // unavailable until the new replica has caught up
      20_000,
    );
    expect(loss.lostMs).toBeLessThan(performance.now());
    if (next.kind === 'held') expect(next.lease.fencingToken).toBeGreaterThan(lease.fencingToken!);
    await b.close();
    replica.disconnect();
    await second.kill();
    await rm(folder, { recursive: true, force: true });
  });
});

describe('several replicas', () => {
  const trio = opened(() => openReplicated(create, 3));

  it('must be a majority with the primary', async () => {
    const a = await trio.process();
    const options = { ttlMs: 5_000, waitMs: 0 };
    process.kill(trio.replicas[0]!.pid, 'SIGSTOP');
    await (await heldSoon(a.lock, 'three')).release(); // 3 of 4
    process.kill(trio.replicas[1]!.pid, 'SIGSTOP');
    expect((await a.lock.acquire('three', options)).kind).toBe('unavailable'); // 2 of 4
    process.kill(trio.replicas[1]!.pid, 'SIGCONT');
    await (await heldSoon(a.lock, 'three')).release();
    await a.close();
  });
});
