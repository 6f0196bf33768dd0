/** What every polled lock must do beyond the contract, on real servers. */
import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { type Lease, LeaseLostError, type Lock, using } from '../../src/locks/lock.ts';
import type { AcquireOptions } from '../../src/locks/options.ts';
import {
  ends,
  expectLossBefore,
  hold,
  kindOf,
  once,
  PATIENCE_MS,
  timed,
  unlessLate,
  untilAvailable,
  watchLoss,
} from '../contract/lock-steps.ts';
import { reached } from '../support/caller-clients.ts';
import type { Group } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';

/** Acquires a free lock. @throws when another claim holds it */
export const held = (lock: Lock, resource: string, more: Partial<AcquireOptions> = {}): Promise<Lease> =>
  hold({ lock }, resource, more);

/** No timer fires that is set from now on, so that a waiter polls no more. `vi.restoreAllMocks` ends that. */
export function stopTimers(): void {
  const stopped = setTimeout(() => {});
  clearTimeout(stopped);
  vi.spyOn(globalThis, 'setTimeout').mockImplementation((() => stopped) as never);
}

/** Waits for the next renewal of a lease. */
export async function renewed(lease: Lease): Promise<void> {
  const { deadlineMs } = lease;
  await expect.poll(() => lease.deadlineMs).toBeGreaterThan(deadlineMs);
  expect(lease.signal.aborted).toBe(false);
}

export function commonChecks(open: () => Promise<Group>): void {
  const fixture = opened(open);
  const another = () => reached(() => fixture.process());
  const a = opened(another);
  const b = opened(another);
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
  const polling = { timeout: 90_000, interval: 10 };
  const expectNothing = (resource: string) => expect.poll(() => keysOf(resource), polling).toEqual([]);
  /** Expects nothing of those that wait for a claim. */
  const expectOnly = ({ resource, token }: Lease) =>
    vi.waitFor(async () => {
      const key = `stampede:{${resource}}:lock`;
      expect(new Set(await keysOf(resource))).toEqual(new Set([key]));
      const tokens = await Promise.all(servers.map((server) => server.get(key)));
      expect(new Set(tokens.filter((one) => one !== null))).toEqual(new Set([token]));
    }, polling);

  it('loses no increment of an unprotected counter', async () => {
    const processes = [a, b, await another(), await another()];
    const [counter] = servers;
    let inside = 0;
    const work = processes.flatMap(({ lock }) =>
      Array.from({ length: 15 }, () =>
        untilAvailable(() =>
          using(lock, 'counter', { ...once, waitMs: 150_000 }, async () => {
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
    await expectNothing('counter');
  });

  it('waits for waitMs, and leaves nothing behind', async () => {
    const lease = await held(a.lock, 'waiting');
    for (const waiter of [a, b]) {
      const { value, tookMs } = await timed(() => kindOf(waiter, 'waiting', { waitMs: 500 }));
      expect(value).toBe('contended');
      expect(tookMs).toBeGreaterThanOrEqual(495);
      await expectOnly(lease);
    }
    await lease.release();
  });

  it('ends an aborted wait, and leaves nothing behind', async () => {
    const lease = await held(a.lock, 'aborting');
    for (const waiter of [a, b]) {
      const signal = AbortSignal.timeout(200);
      expect(await kindOf(waiter, 'aborting', { waitMs: PATIENCE_MS, signal })).toBe('aborted');
      await expectOnly(lease);
    }
    expect(await kindOf(b, 'aborting', { waitMs: 9, signal: AbortSignal.abort() })).toBe('aborted');
    await lease.release();
    // Its last attempt may still be on its way, and with it the turn of this process.
    await (await held(b.lock, 'aborting', { waitMs: PATIENCE_MS })).release();
    await expectNothing('aborting');
  });

  it('does not release a lock that another claim holds', async () => {
    const late = await held(a.lock, 'late');
    await Promise.all(servers.map((server) => server.del('stampede:{late}:lock')));
    const next = await held(b.lock, 'late');
    if ((await ends(late, 'lost')) === 'lost') expect(late.signal.reason).toBeInstanceOf(LeaseLostError);
    expect(await kindOf(a, 'late')).toBe('contended');
    await ends(next, 'released');
  });

  it('renews a lease beyond its TTL', async () => {
    const ttlMs = 9_000; // a busy machine renews some seconds late
    const lease = await held(a.lock, 'long', { ttlMs });
    const firstMs = lease.deadlineMs;
    // Renewed after the first deadline.
    await expect.poll(() => lease.deadlineMs).toBeGreaterThan(firstMs + ttlMs);
    expect(lease.signal.aborted).toBe(false);
    expect(await kindOf(b, 'long')).toBe('contended');
    await ends(lease, 'released');
    await expectNothing('long');
  });

  it('signals the loss to a holder with silent connections before another claim is granted', async () => {
    const own = await another();
    const lease = await held(own.lock, 'silent', { ttlMs: 2_000 });
    const loss = watchLoss(lease);
    own.link.set('black-hole');
    const next = await held(b.lock, 'silent', { waitMs: PATIENCE_MS });
    expectLossBefore(lease, loss);
    expect(await lease.release()).toBe('lost');
    await ends(next, 'released');
    await own.close();
  });

  it('releases what a request without a reply acquired', async () => {
    const own = await another();
    own.link.set('lose-replies');
    expect((await own.lock.acquire('no-reply', once)).kind).toBe('unavailable');
    await (await held(b.lock, 'no-reply', { waitMs: PATIENCE_MS })).release(); // long before the TTL
    await own.close();
  });

  it('leaves nothing behind when it closes', async () => {
    const sockets = () => process.getActiveResourcesInfo().filter((kind) => kind === 'TCPSocketWrap').length;
    await expectNothing('closing'); // by then those who look are connected
    const before = sockets();
    const own = await another();
    // A separate process, whose connections nothing else uses.
    const lease = await held(own.lock, 'closing');
    const stranger = await held(a.lock, 'closing-2');
    const { requests } = own.link;
    const waiting = ['closing', 'closing-2'].map((resource) =>
      own.lock.acquire(resource, { ...once, waitMs: PATIENCE_MS }),
    );
    await expect.poll(() => own.link.requests).toBeGreaterThan(requests);
    const { tookMs } = await timed(() => own.lock.close());
    for (const result of await Promise.all(waiting)) expect(result.kind).toBe('unavailable');
    await expectNothing('closing');
    await expectOnly(stranger);
    expect((await own.lock.acquire('closing', once)).kind).toBe('unavailable');
    expect(await lease.release()).toEqual(unlessLate(tookMs, 'released', 'unknown')); // by `close`
    await own.close();
    await stranger.release();
    await expectNothing('closing-2');
    await expect.poll(sockets).toBeLessThanOrEqual(before);
  });
}
