/** What a lock does when its holder dies, is late or is disconnected: for each capability, with it and without it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import type { LockDescription } from '../../src/locks/lock.ts';
import {
  type Contender,
  ends,
  expectLossBefore,
  type Harness,
  hold,
  kindOf,
  once,
  PATIENCE_MS,
  soon,
  watchLoss,
} from './lock-steps.ts';

/** After EXPIRED_MS a lease of TTL_MS has expired and a waiter has noticed, even on a busy machine. */
const TTL_MS = 1_500;
const EXPIRED_MS = 3 * TTL_MS;
/** A lease that a busy machine renews in time. */
const RENEWED_TTL_MS = 9_000;

/** @param isWhole also with what only the lock's kit decides */
export function divergences(harness: Harness, description: LockDescription, isWhole: boolean): void {
  deadHolder(harness, description);
  lateHolder(harness, description);
  lostReplies(harness, description);
  longWork(harness, description);
  silence(harness, description);
  if (isWhole) silentRelease(harness, description);
}

function deadHolder({ test }: Harness, { capabilities }: LockDescription): void {
  const expires = capabilities.includes('expires-after-holder-death');
  test(
    expires ? 'expires after holder death' : 'stays locked for ever after holder death',
    async ({ a, b, r }) => {
      await hold(a, r, { ttlMs: TTL_MS });
      await a.close();
      const result = await kindOf(b, r, { ttlMs: TTL_MS, waitMs: expires ? PATIENCE_MS : EXPIRED_MS });
      expect(result).toBe(expires ? 'held' : 'contended');
    },
  );
}

function lateHolder({ test, fixture }: Harness, { capabilities }: LockDescription): void {
  const checksOwnership = capabilities.includes('release-checks-ownership');
  test(
    checksOwnership ? 'checks ownership on release' : "deletes the next holder's lock",
    async ({ a, b, r, process, resource }) => {
      const c = await process();
      const late = await hold(a, r, { ttlMs: TTL_MS });
      if (!capabilities.includes('expires-after-holder-death')) await fixture.evict!(r);
      else if (capabilities.includes('held-while-working')) a.link.set('refuse');
      const next = await hold(b, r, { waitMs: PATIENCE_MS });
      a.link.set('pass');
      await (await hold(a, resource())).release(); // it is connected again
      if (checksOwnership) {
        await ends(late, 'lost');
        expect(await kindOf(c, r)).toBe('contended');
        await ends(next, 'released');
      } else {
        await ends(late, 'released');
        await hold(c, r);
        expect(next.signal.aborted).toBe(false); // two holders, and neither knows
      }
    },
  );
}

/** Loses the reply to an acquire. @returns the acquisition, once its reply is lost */
async function loseReply(a: Contender, r: string) {
  const replies = () => a.links.reduce((sum, { roundTrips }) => sum + roundTrips, 0);
  const before = replies();
  a.link.set('lose-replies');
  const acquiring = a.lock.acquire(r, once);
  await soon(() => expect(replies()).toBeGreaterThan(before));
  return { acquiring };
}

function lostReplies({ test }: Harness, { capabilities }: LockDescription): void {
  const resolves = capabilities.includes('ambiguous-acquire-resolved');

  test(
    resolves
      ? 'resolves an acquire whose reply never arrives'
      : 'stays locked by an acquire whose reply never arrives',
    async ({ a, b, r }) => {
      const { acquiring } = await loseReply(a, r);
      expect((await acquiring).kind).toBe('unavailable');
      const next = await kindOf(b, r, { waitMs: resolves ? PATIENCE_MS : 2_000 });
      expect(next).toBe(resolves ? 'held' : 'contended');
    },
  );

  test(
    resolves
      ? 'resolves an acquire whose connection is cut before the reply'
      : 'stays locked by an acquire whose connection is cut before the reply',
    async ({ a, b, r }) => {
      const { acquiring } = await loseReply(a, r);
      a.link.set('pass'); // which cuts the connection
      const result = await acquiring;
      if (!resolves) {
        expect(result.kind).toBe('unavailable');
        expect(await kindOf(a, r, { waitMs: 1_000 })).toBe('contended');
        expect(await kindOf(b, r, { waitMs: 1_000 })).toBe('contended');
        return;
      }
      if (result.kind === 'held') {
        expect(await kindOf(b, r)).toBe('contended');
        await ends(result.lease, 'released');
      }
      await hold(b, r, { waitMs: PATIENCE_MS });
    },
  );
}

function longWork({ test }: Harness, { capabilities }: LockDescription): void {
  const heldWhileWorking = capabilities.includes('held-while-working');
  test(
    heldWhileWorking ? 'keeps the lock for work longer than its TTL' : 'admits a second holder after the TTL',
    async ({ a, b, r }) => {
      const lease = await hold(a, r, { ttlMs: heldWhileWorking ? RENEWED_TTL_MS : TTL_MS });
      if (heldWhileWorking) {
        const leftMs = Math.min(lease.deadlineMs - performance.now(), RENEWED_TTL_MS);
        expect(await kindOf(b, r, { waitMs: leftMs + TTL_MS })).toBe('contended');
        expect(lease.signal.aborted).toBe(false);
        expect(lease.deadlineMs).toBeGreaterThan(performance.now());
        await ends(lease, 'released');
        await hold(b, r, { waitMs: PATIENCE_MS });
      } else {
        const next = await hold(b, r, { waitMs: PATIENCE_MS });
        expect(lease.signal.aborted).toBe(capabilities.includes('loss-signalled-before-expiry'));
        expect(next.signal.aborted).toBe(false);
      }
    },
  );
}

function silentRelease({ test }: Harness, { capabilities }: LockDescription): void {
  test('ends the release, and says that its outcome is unknown, while its server is silent', async ({
    a,
    b,
    r,
  }) => {
    const lease = await hold(a, r);
    a.link.set('black-hole');
    expect(await lease.release()).toBe('unknown');
    if (!capabilities.includes('loss-signalled-before-expiry')) return;
    a.link.set('pass');
    await hold(b, r, { waitMs: 2 * PATIENCE_MS }); // long before the TTL
  });
}

function silence({ test }: Harness, { capabilities }: LockDescription): void {
  const expires = capabilities.includes('expires-after-holder-death');
  const signalsLoss = capabilities.includes('loss-signalled-before-expiry');
  test(
    signalsLoss ? 'signals the loss before the lease can expire' : 'never signals a loss',
    async ({ a, b, r }) => {
      const lease = await hold(a, r, { ttlMs: TTL_MS });
      const loss = watchLoss(lease);
      a.link.set('black-hole');
      const next = await kindOf(b, r, { ttlMs: TTL_MS, waitMs: expires ? PATIENCE_MS : EXPIRED_MS });
      expect(next).toBe(expires ? 'held' : 'contended');
      if (signalsLoss) expectLossBefore(lease, loss);
      else {
        await sleep(TTL_MS);
        expect(loss.lostMs).toBe(Number.POSITIVE_INFINITY);
        expect(lease.signal.aborted).toBe(false);
      }
    },
  );
}
