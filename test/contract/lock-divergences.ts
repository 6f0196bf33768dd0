/** What a lock does when its holder dies, is late or is cut off; for each capability, with it and without it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { LeaseLostError, type LockDescription } from '../../src/locks/lock.ts';
import { type Bench, hold, kindOf } from './lock-steps.ts';

/** Long enough for a lease of TTL_MS to end, and for a waiter to see it, on a busy machine. */
const TTL_MS = 900;
const OVER_MS = 3 * TTL_MS;

export function divergences(bench: Bench, description: LockDescription): void {
  deadHolder(bench, description);
  lateHolder(bench, description);
  lostAnswers(bench, description);
  longWork(bench, description);
  silence(bench, description);
}

function deadHolder({ process, resource }: Bench, { capabilities }: LockDescription): void {
  it(capabilities.expires ? 'survives a dead holder' : 'is locked for ever by a dead holder', async () => {
    const [a, b] = [await process(), await process()];
    const r = resource();
    await hold(a, r, { ttlMs: TTL_MS });
    await a.close();
    const result = await kindOf(b, r, { waitMs: capabilities.expires ? 10_000 : OVER_MS });
    expect(result).toBe(capabilities.expires ? 'held' : 'contended');
  });
}

function lateHolder(bench: Bench, { capabilities }: LockDescription): void {
  const { checksOwner, expires, renews } = capabilities;
  it(checksOwner ? 'ignores the release of a late holder' : "deletes the next holder's lock", async () => {
    const [a, b, c] = [await bench.process(), await bench.process(), await bench.process()];
    const r = bench.resource();
    const late = await hold(a, r, { ttlMs: TTL_MS });
    if (!expires) await bench.fixture.evict!(r);
    else if (renews) a.link.set('refuse');
    const next = await hold(b, r, { ttlMs: 10_000, waitMs: 10_000 });
    a.link.set('pass');
    await sleep(300); // for a new connection
    if (checksOwner) {
      expect(await late.release()).toBe(false);
      expect(await kindOf(c, r)).toBe('contended');
      expect(await next.release()).toBe(true);
    } else {
      expect(await late.release()).toBe(true);
      expect(await kindOf(c, r, { ttlMs: 10_000 })).toBe('held');
      expect(next.signal.aborted).toBe(false); // two who both think that they hold it
    }
  });
}

function lostAnswers({ process, resource }: Bench, { capabilities }: LockDescription): void {
  const settles = capabilities.settlesLostAnswers;
  const TTL_LONG_MS = 15_000;

  it(settles ? 'settles an answer that never comes' : 'is locked by an answer that never came', async () => {
    const [a, b] = [await process(), await process()];
    const r = resource();
    a.link.set('lose-replies');
    const result = await a.lock.acquire(r, { ttlMs: TTL_LONG_MS, waitMs: 0 });
    expect(result.kind).toBe('unavailable');
    const next = await kindOf(b, r, { waitMs: 2_000 });
    expect(next).toBe(settles ? 'held' : 'contended');
  });

  it(settles ? 'settles an answer that was cut off' : 'is locked by an answer that was cut off', async () => {
    const [a, b] = [await process(), await process()];
    const r = resource();
    a.link.set('lose-replies');
    const asked = a.lock.acquire(r, { ttlMs: TTL_LONG_MS, waitMs: 0 });
    await sleep(200);
    a.link.set('pass'); // which cuts the connection
    const result = await asked;
    if (!settles) {
      expect(result.kind).toBe('unavailable');
      expect(await kindOf(a, r, { waitMs: 1_000 })).not.toBe('held');
      expect(await kindOf(b, r, { waitMs: 1_000 })).toBe('contended');
      return;
    }
    if (result.kind === 'held') {
      expect(await kindOf(b, r)).toBe('contended');
      expect(await result.lease.release()).toBe(true);
    }
    expect(await kindOf(b, r, { waitMs: 3_000 })).toBe('held');
  });
}

function longWork({ process, resource }: Bench, { capabilities }: LockDescription): void {
  const { renews, signalsLoss } = capabilities;
  it(renews ? 'keeps the lock for work longer than its TTL' : 'lets a second holder in', async () => {
    const [a, b] = [await process(), await process()];
    const r = resource();
    const lease = await hold(a, r, { ttlMs: TTL_MS });
    if (renews) {
      expect(await kindOf(b, r, { waitMs: OVER_MS })).toBe('contended');
      expect(lease.signal.aborted).toBe(false);
      expect(lease.deadlineMs).toBeGreaterThan(performance.now());
      expect(await lease.release()).toBe(true);
      expect(await kindOf(b, r, { waitMs: 1_000 })).toBe('held');
    } else {
      const next = await hold(b, r, { waitMs: 10_000 });
      expect(lease.signal.aborted).toBe(signalsLoss);
      expect(next.signal.aborted).toBe(false);
    }
  });
}

function silence({ process, resource }: Bench, { capabilities }: LockDescription): void {
  const { expires, signalsLoss } = capabilities;
  it(
    signalsLoss
      ? 'tells its holder of the loss before another can have the lock'
      : 'never tells its holder of a loss',
    async () => {
      const [a, b] = [await process(), await process()];
      const r = resource();
      const lease = await hold(a, r, { ttlMs: TTL_MS });
      let lostMs = Number.POSITIVE_INFINITY;
      lease.signal.addEventListener('abort', () => {
        lostMs = performance.now();
      });
      a.link.set('black-hole');
      const next = await kindOf(b, r, { waitMs: expires ? 15_000 : OVER_MS });
      const nextMs = performance.now();
      expect(next).toBe(expires ? 'held' : 'contended');
      if (signalsLoss) {
        expect(lostMs).toBeLessThan(nextMs);
        expect(lease.signal.reason).toBeInstanceOf(LeaseLostError);
      } else {
        await sleep(TTL_MS);
        expect(lostMs).toBe(Number.POSITIVE_INFINITY);
        expect(lease.signal.aborted).toBe(false);
      }
    },
  );
}
