/** All checks on one trial, and the verdict. */
import type { HistoryRecord } from '../kit/history.ts';
import { type Check, type CheckResult, isActive, isUnreadable, type StoresSnapshot } from './check.ts';
import { drift } from './drift.ts';
import { duplicates } from './duplicates.ts';
import { lost } from './lost.ts';
import { oversold } from './oversold.ts';
import { payments } from './payments.ts';
import { phantom } from './phantom.ts';
import { points } from './points.ts';
import { returns } from './returns.ts';
import { tasks } from './tasks.ts';
import { undersold } from './undersold.ts';

/** Every check, by the name of its number in `results.json`. */
const checks = {
  oversold,
  undersold,
  duplicates,
  lost,
  phantom,
  drift,
  pointsMismatch: points,
  returnsMismatch: returns,
  paymentsMismatch: payments,
  tasksMismatch: tasks,
} satisfies Record<string, Check>;

export type CheckName = keyof typeof checks;

export const checkNames = Object.keys(checks) as readonly CheckName[];

/** `pass`: every check was made and found nothing. `unknown`: nothing was found, but a check could not be made. */
export type Verdict = 'pass' | 'fail' | 'unknown';

/** The number of each check (null: could not be made), and in words what is wrong or could not be seen. */
export type AuditReport = Readonly<Record<CheckName, number | null>> & {
  readonly verdict: Verdict;
  readonly findings: readonly string[];
};

/** Judges one trial. Pure: the same history and snapshot always give the same report. */
export function audit(history: readonly HistoryRecord[], stores: StoresSnapshot): AuditReport {
  const results = runChecks(history, stores);
  const counts = Object.fromEntries(checkNames.map((name) => [name, results[name].count]));
  const findings = checkNames.map((name) => results[name].finding).filter((finding) => finding !== null);
  return {
    ...(counts as Record<CheckName, number | null>),
    verdict: verdictOf(Object.values(results)),
    findings: [...new Set(findings)],
  };
}

/** The reports of several sales as one: numbers are added, and a check that could not be made for one was not made. */
export function mergeAudits(reports: readonly AuditReport[]): AuditReport {
  const [only] = reports;
  if (reports.length === 1 && only !== undefined) return only;
  const sum = (name: CheckName): number | null =>
    reports.reduce<number | null>((total, report) => {
      const count = report[name];
      return total === null || count === null ? null : total + count;
    }, 0);
  const counts = Object.fromEntries(checkNames.map((name) => [name, sum(name)]));
  const verdicts = reports.map(({ verdict }) => verdict);
  return {
    ...(counts as Record<CheckName, number | null>),
    verdict: verdicts.includes('fail') ? 'fail' : verdicts.includes('unknown') ? 'unknown' : 'pass',
    findings: [...new Set(reports.flatMap(({ findings }) => findings))],
  };
}

function runChecks(
  history: readonly HistoryRecord[],
  { postgres, redis }: StoresSnapshot,
): Record<CheckName, CheckResult> {
  const each = (judge: (check: Check) => CheckResult): Record<CheckName, CheckResult> =>
    Object.fromEntries(checkNames.map((name) => [name, judge(checks[name])])) as Record<
      CheckName,
      CheckResult
    >;

  if (isUnreadable(postgres)) {
    const finding = `Postgres could not be read: ${postgres.unreadable}`;
    return each(() => ({ count: null, finding }));
  }
  const ofSale = postgres.orders.filter(({ saleId }) => saleId === postgres.sale.id);
  const active = ofSale.filter(isActive);
  const closed = ofSale.filter((order) => !isActive(order));
  const evidence = { history, postgres, redis, active, closed };
  return each((check) => check(evidence));
}

function verdictOf(results: readonly CheckResult[]): Verdict {
  if (results.some(({ count }) => count !== null && count > 0)) return 'fail';
  return results.some(({ count }) => count === null) ? 'unknown' : 'pass';
}
