/** All checks on one load, and the verdict. */
import type { HistoryRecord } from '../history.ts';
import { answers } from './answers.ts';
import {
  type Check,
  type CheckResult,
  isActive,
  isUnreadable,
  type StoresSnapshot,
  unitsOf,
} from './check.ts';
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
  answersMismatch: answers,
} satisfies Record<string, Check>;

export type CheckName = keyof typeof checks;
const isOfDatabase = (name: CheckName): boolean =>
  name === 'pointsMismatch' || name === 'paymentsMismatch' || name === 'tasksMismatch';

export const checkNames = Object.keys(checks) as readonly CheckName[];

/** `pass`: every check was made and found nothing. `unknown`: nothing was found, but a check could not be made. */
export type Verdict = 'pass' | 'fail' | 'unknown';

/** The count of each check (null: could not be made), and in words what is wrong or could not be read. */
export type AuditReport = Readonly<Record<CheckName, number | null>> & {
  readonly verdict: Verdict;
  readonly findings: readonly string[];
};

/**
 * Judges one load. Pure: the same history and snapshots always give the same report.
 * @param sales one snapshot for each sale; their counts are added, and null if a check could not be made for one of them. Checks that read
 *   all orders of the database find the same in each sale, and count once
 */
export function audit(history: readonly HistoryRecord[], ...sales: readonly StoresSnapshot[]): AuditReport {
  const results = sales.map((stores) => judge(history, stores));
  const sums = checkNames.map((name): [CheckName, number | null] => {
    const counts = results.map((result) => result[name].count);
    if (counts.includes(null)) return [name, null];
    const all = counts as number[];
    return [name, isOfDatabase(name) ? Math.max(0, ...all) : all.reduce((sum, count) => sum + count, 0)];
  });
  const all = results.flatMap((result) => checkNames.map((name) => result[name]));
  const isWrong = all.some(({ count }) => count !== null && count > 0);
  const isBlind = all.some(({ count }) => count === null);
  return {
    ...(Object.fromEntries(sums) as Record<CheckName, number | null>),
    verdict: isWrong ? 'fail' : isBlind ? 'unknown' : 'pass',
    findings: [...new Set(all.flatMap(({ finding }) => finding ?? []))],
  };
}

/** The findings of some checks in one sale, in words. */
export function findingsOf(
  names: readonly CheckName[],
  history: readonly HistoryRecord[],
  stores: StoresSnapshot,
): string[] {
  const results = judge(history, stores);
  return [...new Set(names.flatMap((name) => results[name].finding ?? []))];
}

function judge(
  all: readonly HistoryRecord[],
  { postgres, redis }: StoresSnapshot,
): Record<CheckName, CheckResult> {
  const each = (check: (name: CheckName) => CheckResult) =>
    Object.fromEntries(checkNames.map((name) => [name, check(name)])) as Record<CheckName, CheckResult>;
  if (isUnreadable(postgres)) {
    const finding = `Postgres could not be read: ${postgres.unreadable}`;
    return each(() => ({ count: null, finding }));
  }
  const { id } = postgres.sale;
  const history = all.filter(({ saleId }) => saleId === id);
  const orders = postgres.orders.filter(({ saleId }) => saleId === id);
  const [active, closed] = [orders.filter(isActive), orders.filter((order) => !isActive(order))];
  const evidence = { history, postgres, redis, active, activeUnits: unitsOf(active), closed };
  return each((name) => checks[name](evidence));
}
