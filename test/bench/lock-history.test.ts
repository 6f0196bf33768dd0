/** The fault lab's verdicts: on a lock, from the events of its clients, and on a sale, from its audit. */
import { describe, expect, it } from 'vitest';
import { type Client, judgeLock, type LabEvent } from '../../bench/suites/faults/history.ts';
import { wordOf } from '../../bench/suites/faults/sale-verdict.ts';
import { type AuditReport, checkNames } from '../../lab/audit/audit.ts';

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
const judge = (events: readonly LabEvent[]) => judgeLock(events, [200 * MS, 300 * MS], 5_000 * MS);

describe('a history of a lock', () => {
  const b: Claim = { client: 'B', from: 1_000, to: 1_500, token: 2 };
  const c: Claim = { client: 'C', from: 1_500, to: 2_000, token: 3 };

  /** Loses its lock when it is paused, and resumes for 50 ms. */
  const resumed: Claim = { client: 'A', from: 0, to: 1_750, token: 1, paused: [300, 1_700] };
  const late: Claim = { client: 'A', from: 0, to: 1_100, token: 1 };

  it.each<[string, Claim[], Partial<ReturnType<typeof judgeLock>>]>([
    [
      'one holder after the other',
      [{ client: 'A', from: 0, to: 210, token: 1 }, b, c],
      { word: 'one holder', twoHoldersMs: 0, lateWrites: 0, signalled: null, idleMs: 800 },
    ],
    [
      'a first holder that writes on',
      [{ client: 'A', from: 0, to: 1_400 }, { client: 'B', from: 1_000, to: 1_500 }, c],
      { word: 'two holders', twoHoldersMs: 390, lateWrites: 39, fencedWrites: 39, signalled: 'never' },
    ],
    ['late writes with an older token', [late, b, c], { word: 'fenced', lateWrites: 9, fencedWrites: 0 }],
    // The next holder has an older token: the fence lets late writes through.
    [
      'late writes with a newer token',
      [{ ...late, token: 5 }, b, c],
      { word: 'two holders', fencedWrites: 9 },
    ],
    [
      'one that is signalled late',
      [{ ...resumed, lost: 1_740 }, b, c],
      { word: 'fenced', signalled: 'late' },
    ],
    [
      'one that is signalled in time',
      [{ ...resumed, to: 1_700, lost: 1_700 }, b, c],
      { word: 'one holder', signalled: 'in time' },
    ],
    ['a holder that is absent while paused', [{ ...resumed, to: 1_800 }, b, c], { twoHoldersMs: 90 }],
    ['waiters that are never served', [{ client: 'A', from: 0, to: 210 }], { word: 'stuck', idleMs: 4_800 }],
  ])('has %s', (_, claims, expected) => {
    expect(judge(eventsOf(claims))).toMatchObject(expected);
  });
});

type Counts = Partial<Record<(typeof checkNames)[number], number | null>>;
const report = (counts: Counts, verdict: AuditReport['verdict'] = 'fail'): AuditReport => {
  const clean = Object.fromEntries(checkNames.map((name) => [name, 0]));
  return { ...clean, ...counts, verdict, findings: [] } as unknown as AuditReport;
};

it.each<[string, AuditReport, boolean]>([
  ['kept', report({}, 'pass'), false],
  ['not audited', report({}, 'unknown'), false],
  ['lost', report({ lost: 3 }), true],
  ['broken', report({ lost: 3 }), false],
  ['broken', report({ lost: 3, drift: 1 }), true],
  ['oversold', report({ oversold: 2 }), false],
  ['oversold', report({ lost: 3, oversold: 2 }), true],
  ['broken', report({ duplicates: 1, oversold: null }), false],
])('a sale under a fault is %s', (word, audit, loses) => {
  expect(wordOf(audit, loses)).toBe(word);
});
