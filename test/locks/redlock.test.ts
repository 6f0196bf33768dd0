import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { create } from '../../src/locks/redlock.ts';
import { openRedlockServers } from '../../src/store/redis/redlock-servers.ts';
import {
  ends,
  expectLossBefore,
  held,
  kindOf,
  once,
  PATIENCE_MS,
  renewed,
  watchLoss,
} from '../contract/lock-steps.ts';
import { reached } from '../support/caller-clients.ts';
import { openIndependent } from '../support/lock-groups.ts';
import { opened } from '../support/opened.ts';

describe('the servers of redlock', () => {
  const fixture = opened(() => openIndependent(create));
  const another = () => reached(() => fixture.process());
  const a = opened(another);
  const b = opened(another);
  let looks: Redis[] = [];
  beforeAll(() => {
    looks = fixture.ports.map((port) => new Redis(port).on('error', () => {}));
  });
  afterAll(() => {
    for (const look of looks) look.disconnect();
  });
  const values = (resource: string) =>
    Promise.all(looks.map((look) => look.get(`stampede:{${resource}}:lock`)));
  const stop = (i: number) => process.kill(fixture.redis[i]!.pid, 'SIGSTOP');
  const go = (i: number) => process.kill(fixture.redis[i]!.pid, 'SIGCONT');
  const none = [null, null, null, null, null];
  /** Polls, because a decision does not wait for the last of the servers. */
  const polling = { timeout: 90_000, interval: 10 };
  const expectValues = (resource: string, expected: unknown[]) =>
    expect.poll(() => values(resource), polling).toEqual(expected);

  it('tolerate two of five holding another claim, not three, and the rest keep nothing', async () => {
    const [one, two, three] = looks;
    for (const look of [one, two]) await look!.set('stampede:{part}:lock', 'other');
    await (await held(a.lock, 'part')).release();
    await expectValues('part', ['other', 'other', null, null, null]);
    await three!.set('stampede:{part}:lock', 'other');
    expect(await kindOf(a, 'part')).toBe('contended');
    await expectValues('part', ['other', 'other', 'other', null, null]);
  });

  it('reach no quorum if three are late, and their late replies leave no claim', async () => {
    for (const i of [2, 3, 4]) stop(i);
    const result = await a.lock.acquire('too-late', { ttlMs: 20_000, waitMs: 0 });
    expect(result).toEqual({ kind: 'unavailable', reason: 'redlock-no-quorum' });
    for (const i of [2, 3, 4]) go(i);
    await expectValues('too-late', none);
    await (await held(b.lock, 'too-late')).release();
  });

  it('do not grant a lease by a reply after its deadline', async () => {
    for (const i of [2, 3, 4]) stop(i);
    const acquiring = a.lock.acquire('over', { ttlMs: 300, waitMs: 0 });
    setTimeout(() => {
      for (const i of [2, 3, 4]) go(i);
      const untilMs = performance.now() + 350;
      while (performance.now() < untilMs); // blocks the process: the grants arrive too late
    }, 5);
    const result = await acquiring;
    expect(result.kind).toBe('unavailable');
    await expectValues('over', none);
  });

  it('keep a lease if a minority cannot renew it, and lose it if a majority cannot', async () => {
    const lease = await held(a.lock, 'renew', { ttlMs: 15_000 });
    for (const i of [0, 1]) a.links[i]!.set('black-hole');
    await renewed(lease);
    a.links[2]!.set('black-hole');
    const loss = watchLoss(lease);
    const next = await held(b.lock, 'renew', { waitMs: PATIENCE_MS });
    expectLossBefore(lease, loss);
    await next.release();
    a.link.set('pass');
    await (await held(a.lock, 'renew', { waitMs: PATIENCE_MS })).release();
    // The lost lease expires on the minority.
    await expectValues('renew', none);
  });

  it('tolerate two crashes, are unavailable after three, and recover', async () => {
    const lease = await held(a.lock, 'die', { ttlMs: 15_000 });
    for (const i of [0, 1]) await fixture.redis[i]!.kill();
    await renewed(lease);
    expect(await kindOf(b, 'die')).toBe('contended');
    await ends(lease, 'released');
    await ends(await held(b.lock, 'die'), 'released');
    const late = await another(); // opened while two are down
    await ends(await held(late.lock, 'die'), 'released');
    await fixture.redis[2]!.kill();
    expect(await a.lock.acquire('die', once)).toMatchObject({ kind: 'unavailable' });
    for (const look of looks.slice(3))
      await expect.poll(() => look.get('stampede:{die}:lock'), polling).toBeNull();
    await expect(fixture.process()).rejects.toThrow('fewer than 3 of the 5');
    for (const i of [0, 1, 2]) await fixture.restart(i);
    for (const { lock } of [a, b, late])
      await ends(await held(lock, 'die', { waitMs: PATIENCE_MS }), 'released');
    await late.close();
  });

  it('must be at least three different ones', async () => {
    const url = (port: number) => `redis://127.0.0.1:${port}`;
    for (const ports of [[1, 2], [1, 2, 2], []]) {
      await expect(openRedlockServers(ports.map(url), () => {})).rejects.toThrow('at least three');
    }
  });
});
