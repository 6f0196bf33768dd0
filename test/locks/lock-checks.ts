/** What every polled lock must do beyond the contract, on real servers. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { type AcquireOptions, type Lease, LeaseLostError, type Lock, using } from '../../src/locks/lock.ts';
import { watchLoss } from '../contract/lock-steps.ts';
import { eventually } from '../support/client.ts';
import type { Group } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';

/** A server that is late on a busy machine is asked again. */
const untilAvailable = <T extends { readonly kind: string }>(ask: () => Promise<T>): Promise<T> =>
  eventually(ask, ({ kind }) => kind !== 'unavailable');

/** Acquires a free lock. @throws when another claim holds it */
export async function held(lock: Lock, resource: string, more: Partial<AcquireOptions> = {}) {
  const result = await untilAvailable(() => lock.acquire(resource, { ttlMs: 2_000, waitMs: 0, ...more }));
  if (result.kind !== 'held') throw new Error(JSON.stringify(result));
  return result.lease;
}

/** Waits for the first renewal of a lease. */
export async function renewed(lease: Lease): Promise<void> {
  const { deadlineMs } = lease;
  await expect.poll(() => lease.deadlineMs).toBeGreaterThan(deadlineMs);
  expect(lease.signal.aborted).toBe(false);
}

export function commonChecks(open: () => Promise<Group>): void {
  const fixture = opened(open);
  const a = opened(() => fixture.process());
  const b = opened(() => fixture.process());
  let servers: Redis[] = [];
  beforeAll(() => {
    servers = fixture.ports.map((port) => new Redis(port));
  });
  afterAll(() => {
    for (const server of servers) server.disconnect();
  });
  /** The servers' keys of a resource, without the fence. */
  const keysOf = async (resource: string) => {
    const keys = await Promise.all(servers.map((server) => server.keys(`stampede:{${resource}}:*`)));
    return keys.flat().filter((key) => !key.endsWith(':fence'));
  };
  /** Polls, because a release does not wait for the last of several servers. */
  const expectKeys = (resource: string, keys: string[]) =>
    vi.waitFor(async () => expect(await keysOf(resource)).toEqual(keys), { timeout: 90_000, interval: 10 });

  it('loses no increment of an unprotected counter', async () => {
    const processes = [a, b, await fixture.process(), await fixture.process()];
    const [counter] = servers;
    let inside = 0;
    const work = processes.flatMap(({ lock }) =>
      Array.from({ length: 15 }, () =>
        untilAvailable(() =>
          using(lock, 'counter', { ttlMs: 5_000, waitMs: 60_000 }, async () => {
            expect(++inside).toBe(1);
            const value = Number((await counter!.get('counter')) ?? 0);
            await counter!.set('counter', value + 1);
            inside--;
          }),
        ),
      ),
    );
    for (const result of await Promise.all(work)) expect(result.kind).toBe('done');
    expect(await counter!.get('counter')).toBe('60');
    for (const process of processes.slice(2)) await process.close();
    await expectKeys('counter', []);
  });

  it('waits for waitMs, and leaves nothing behind', async () => {
    const lease = await held(a.lock, 'waiting', { ttlMs: 5_000 });
    const before = await keysOf('waiting');
    for (const lock of [a.lock, b.lock]) {
      const startMs = performance.now();
      expect((await lock.acquire('waiting', { ttlMs: 1_000, waitMs: 500 })).kind).toBe('contended');
      expect(performance.now() - startMs).toBeGreaterThanOrEqual(495);
      await expectKeys('waiting', before);
    }
    await lease.release();
  });

  it('ends an aborted wait, and leaves nothing behind', async () => {
    const lease = await held(a.lock, 'aborting', { ttlMs: 5_000 });
    const before = await keysOf('aborting');
    for (const lock of [a.lock, b.lock]) {
      const signal = AbortSignal.timeout(200);
      const result = await lock.acquire('aborting', { ttlMs: 20_000, waitMs: 10_000, signal });
      expect(result.kind).toBe('aborted');
      await expectKeys('aborting', before);
    }
    const gone = await b.lock.acquire('aborting', { ttlMs: 1_000, waitMs: 9, signal: AbortSignal.abort() });
    expect(gone.kind).toBe('aborted');
    await lease.release();
    // Its last attempt may still be on its way, and with it the turn of this process.
    await (await held(b.lock, 'aborting', { waitMs: 10_000 })).release();
    await expectKeys('aborting', []);
  });

  it('does not release a lock that another claim holds', async () => {
    const late = await held(a.lock, 'late');
    await Promise.all(servers.map((server) => server.del('stampede:{late}:lock')));
    const next = await held(b.lock, 'late');
    expect(await late.release()).toBe('lost');
    expect(late.signal.reason).toBeInstanceOf(LeaseLostError);
    expect((await a.lock.acquire('late', { ttlMs: 1_000, waitMs: 0 })).kind).toBe('contended');
    expect(await next.release()).toBe('released');
  });

  it('renews a lease beyond its TTL', async () => {
    const ttlMs = 3_000; // a busy machine renews a second late
    const lease = await held(a.lock, 'long', { ttlMs });
    const firstMs = lease.deadlineMs;
    // Renewed after the first deadline.
    await expect.poll(() => lease.deadlineMs).toBeGreaterThan(firstMs + ttlMs);
    expect(lease.signal.aborted).toBe(false);
    expect((await b.lock.acquire('long', { ttlMs, waitMs: 0 })).kind).toBe('contended');
    expect(await lease.release()).toBe('released');
    await expectKeys('long', []);
  });

  it('signals the loss to a holder with silent connections before another claim is granted', async () => {
    const own = await fixture.process();
    const lease = await held(own.lock, 'silent', { ttlMs: 800 });
    const loss = watchLoss(lease);
    own.link.set('black-hole');
    const next = await held(b.lock, 'silent', { waitMs: 5_000 });
    const nextMs = performance.now();
    expect(loss.lostMs).toBeLessThan(nextMs);
    expect(lease.signal.reason).toBeInstanceOf(LeaseLostError);
    expect(await lease.release()).toBe('lost');
    expect(await next.release()).toBe('released');
    await own.close();
  });

  it('releases what a request without a reply acquired', async () => {
    const own = await fixture.process();
    own.link.set('lose-replies');
    expect((await own.lock.acquire('no-reply', { ttlMs: 20_000, waitMs: 0 })).kind).toBe('unavailable');
    const next = await held(b.lock, 'no-reply', { waitMs: 4_000 });
    await next.release();
    await own.close();
  });

  it('leaves nothing behind when it closes', async () => {
    const own = await fixture.process();
    // A separate process, whose connections nothing else uses.
    const lease = await held(own.lock, 'closing', { ttlMs: 30_000 });
    const stranger = await held(a.lock, 'closing-2', { ttlMs: 30_000 });
    const waiting = [
      own.lock.acquire('closing', { ttlMs: 1_000, waitMs: 20_000 }),
      own.lock.acquire('closing-2', { ttlMs: 1_000, waitMs: 20_000 }),
    ];
    await sleep(100);
    const before = await keysOf('closing-2');
    await own.lock.close();
    for (const result of await Promise.all(waiting)) expect(result.kind).toBe('unavailable');
    await expectKeys('closing', []);
    expect((await keysOf('closing-2')).length).toBeLessThanOrEqual(before.length);
    expect((await own.lock.acquire('closing', { ttlMs: 1_000, waitMs: 0 })).kind).toBe('unavailable');
    expect(await lease.release()).toBe('released'); // by `close`
    await own.close();
    await stranger.release();
    await expectKeys('closing-2', []);
    await sleep(100);
    const sockets = process.getActiveResourcesInfo().filter((kind) => kind === 'TCPSocketWrap').length;
    const again = await fixture.process();
    await again.close();
    await sleep(200);
    expect(process.getActiveResourcesInfo().filter((kind) => kind === 'TCPSocketWrap').length).toBe(sockets);
  });
}
