/** The audit, as tests use it. */
import type { Redis } from 'ioredis';
import type pg from 'pg';
import { type CheckName, checkNames, findingsOf } from '../../lab/audit/audit.ts';
import { isActive, unitsOf } from '../../lab/audit/check.ts';
import { readNow } from '../../lab/audit/reader.ts';
import { type HistoryRecord, resultOf, unanswered } from '../../lab/history.ts';
import type { Answer } from './client.ts';

/** Checks that must pass at any time. A unit may be free again after a refusal. */
const ANY_TIME = checkNames.filter((name) => name !== 'undersold');
/** Checks that need no complete history: without one, orders seem to be phantoms or unexplained. */
const OF_STORES = ANY_TIME.filter((name) => name !== 'phantom' && name !== 'answersMismatch');
/** Checks that fail until nothing is left between the stores. */
const BETWEEN: readonly CheckName[] = ['drift', 'returnsMismatch'];

/** A sale as Postgres has it, read past the service. */
export interface Judged {
  readonly sold: number;
  /** Units of active orders. */
  readonly active: number;
  /** What is wrong, in words. */
  readonly findings: readonly string[];
}

/**
 * Judges a sale as it is now.
 * @param redis null: the strategy does not use it, or it is not compared yet
 * @param answers to purchases, which must agree with the orders
 */
export async function judge(
  sql: pg.Pool,
  redis: Redis | null,
  saleId: number,
  answers: readonly Answer[] = [],
): Promise<Judged> {
  const stores = (await readNow(sql, redis, [saleId])).get(saleId)!;
  const { sale, orders } = stores.postgres;
  const active = unitsOf(orders.filter((order) => order.saleId === saleId && isActive(order)));
  const history = answers.flatMap((answer, id) => recordOf(answer, saleId, id));
  return { sold: sale.sold, active, findings: findingsOf(OF_STORES, history, stores) };
}

/** An answer that names the customer's order; times are not known. */
function recordOf({ status, body }: Answer, saleId: number, id: number): HistoryRecord[] {
  if (status !== 200 && status !== 201) return [];
  const outcome = status === 200 ? 'replayed' : 'accepted';
  const times = { invokedUs: id, completedUs: id };
  const [userId, orderId, units] = [String(body.userId), String(body.orderId), Number(body.quantity)];
  const what = { op: 'purchase', saleId, userId, orderId, units } as const;
  return [{ id, ...what, ...times, result: resultOf[outcome], outcome, status }];
}

/** Contradictions between the history and Postgres, read at any instant, even while customers buy. */
export async function judgeHistory(
  sql: pg.Pool,
  saleId: number,
  history: () => readonly HistoryRecord[],
): Promise<string[]> {
  const before = [...history()];
  const stores = (await readNow(sql, null, [saleId])).get(saleId)!;
  // Requests that were sent meanwhile may have taken effect.
  const meanwhile = history()
    .slice(before.length)
    .map((one): HistoryRecord => ({ ...one, ...unanswered }));
  const strange = before.filter(({ outcome }) => outcome === 'unexpected');
  return [
    ...findingsOf(ANY_TIME, [...before, ...meanwhile], stores),
    ...strange.map((one) => `outside the contract: ${JSON.stringify(one)}`),
  ];
}

/** What is left between the stores, in words. @param redis null: the strategy does not use it */
export async function pendingWork(sql: pg.Pool, redis: Redis | null, saleId: number): Promise<string[]> {
  return findingsOf(BETWEEN, [], (await readNow(sql, redis, [saleId])).get(saleId)!);
}
