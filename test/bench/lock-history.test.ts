/** The fault lab's verdict on a lock, from the events of its clients: good histories, and the same ones with a defect. */
import { describe, expect, it } from 'vitest';
import { type Client, judgeLock, type LabEvent } from '../../bench/suites/faults/history.ts';

const MS = 1e6;

interface Claim {
  readonly client: Client;
  readonly from: number;
  readonly to: number;
  readonly token?: number;
  readonly lost?: number;
  /** Period without writes. */
  readonly paused?: readonly [from: number, to: number];
}

/** All clients ask at time 0; a holder writes every 10 ms. */
function eventsOf(claims: readonly Claim[]): LabEvent[] {
  const asked = (['A', 'B', 'C'] as const).map((client): LabEvent => ({ kind: 'asked', ns: 0, client }));
  const acted = claims.flatMap(({ client, from, to, token, lost, paused }): LabEvent[] => {
    const events: LabEvent[] = [{ kind: 'granted', ns: from * MS, fencingToken: token ?? null, client }];
    for (let at = from; at < to; at += 10) {
      if (paused === undefined || at <= paused[0] || at >= paused[1])
        events.push({ kind: 'wrote', ns: at * MS, client });
    }
    if (lost !== undefined) events.push({ kind: 'lost', ns: lost * MS, client });
    return [...events, { kind: 'released', ns: to * MS, client }];
  });
  return [...asked, ...acted];
}
const judge = (...claims: Claim[]) => judgeLock(eventsOf(claims), [200 * MS, 300 * MS], 5_000 * MS);

describe('a history of a lock', () => {
  const b: Claim = { client: 'B', from: 1_000, to: 1_500, token: 2 };
  const c: Claim = { client: 'C', from: 1_500, to: 2_000, token: 3 };

  it('with one holder after the other has one holder, and says how long the lock was free', () => {
    const trial = judge({ client: 'A', from: 0, to: 210, token: 1 }, b, c);
    expect(trial).toMatchObject({
      word: 'one holder',
      twoHoldersMs: 0,
      lateWrites: 0,
      signalled: null,
      idleMs: 800,
    });
  });

  it('whose first holder writes on has two holders', () => {
    const trial = judge({ client: 'A', from: 0, to: 1_400 }, { ...b, token: undefined! }, c);
    expect(trial).toMatchObject({
      word: 'two holders',
      lateWrites: 39,
      fencedWrites: 39,
      signalled: 'never',
    });
    expect(trial.twoHoldersMs).toBe(390);
  });

  it('is fenced if every late write has an older token', () => {
    const late: Claim = { client: 'A', from: 0, to: 1_100, token: 1 };
    expect(judge(late, b, c)).toMatchObject({ word: 'fenced', lateWrites: 9, fencedWrites: 0 });
    // The next holder has an older token: the fence lets late writes through.
    expect(judge({ ...late, token: 5 }, b, c)).toMatchObject({ word: 'two holders', fencedWrites: 9 });
  });

  it('distinguishes a loss that was signalled in time from one that was signalled late', () => {
    const paused = [300, 1_700] as const;
    const resumed: Claim = { client: 'A', from: 0, to: 1_750, token: 1, paused };
    expect(judge(resumed, b, c)).toMatchObject({ word: 'fenced', signalled: 'never' });
    expect(judge({ ...resumed, lost: 1_740 }, b, c)).toMatchObject({ word: 'fenced', signalled: 'late' });
    expect(judge({ ...resumed, to: 1_700, lost: 1_700 }, b, c)).toMatchObject({
      word: 'one holder',
      signalled: 'in time',
    });
  });

  it('counts a paused holder as absent', () => {
    const paused = [300, 1_700] as const;
    expect(judge({ client: 'A', from: 0, to: 1_800, token: 1, paused }, b, c).twoHoldersMs).toBe(90);
  });

  it('in which a waiter is never served is stuck', () => {
    const trial = judge({ client: 'A', from: 0, to: 210 });
    expect(trial).toMatchObject({ word: 'stuck', idleMs: 4_800 });
    expect(judge({ client: 'A', from: 0, to: 210 }, b).word).toBe('stuck');
  });

  it('in which the first client was refused says why', () => {
    const events: LabEvent[] = [
      ...eventsOf([b, c]),
      { kind: 'refused', ns: 10 * MS, reason: 'redis-too-few-replicas', client: 'A' },
    ];
    const trial = judgeLock(events, [200 * MS, 300 * MS], 5_000 * MS);
    expect(trial).toMatchObject({ word: 'one holder', refused: 'redis-too-few-replicas' });
  });
});
