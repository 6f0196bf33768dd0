/** The verdict on a sale under a fault, from its audit and from what the fault may lose. */
import { describe, expect, it } from 'vitest';
import { wordOf } from '../../bench/suites/faults/sale-verdict.ts';
import { type AuditReport, checkNames } from '../../lab/audit/audit.ts';

type Counts = Partial<Record<(typeof checkNames)[number], number | null>>;
const report = (counts: Counts, verdict: AuditReport['verdict'] = 'fail'): AuditReport => {
  const clean = Object.fromEntries(checkNames.map((name) => [name, 0]));
  return { ...clean, ...counts, verdict, findings: [] } as unknown as AuditReport;
};

describe('a sale', () => {
  it.each<[string, AuditReport, boolean]>([
    ['kept', report({}, 'pass'), false],
    ['not audited', report({}, 'unknown'), false],
    ['lost', report({ lost: 3 }), true],
    ['broken', report({ lost: 3 }), false],
    ['broken', report({ lost: 3, drift: 1 }), true],
    ['oversold', report({ oversold: 2 }), false],
    ['oversold', report({ lost: 3, oversold: 2 }), true],
    ['broken', report({ duplicates: 1, oversold: null }), false],
  ])('is %s', (word, audit, loses) => {
    expect(wordOf(audit, loses)).toBe(word);
  });
});
