/** What sales with extras are asked for, besides what every sale is: see extras.ts. */
import { unanswered } from '../history.ts';
import type { Clients } from './clients.ts';
import { nowUs } from './excuses.ts';
import { CODE, TWIN_STOCK, twinOf } from './extras.ts';
import type { ExploredProcess } from './process.ts';
import type { ExploreServers } from './servers.ts';
import { virtual } from './virtual.ts';
import type { Action, Operation, Workload } from './workload.ts';

type Parts = NonNullable<ExploredProcess['parts']>;

const OPERATIONS: ReadonlySet<Action['kind']> = new Set([
  'extend',
  'transfer',
  'join',
  'leave',
  'refund-sale',
]);

export const isOperation = (action: Action): action is Action & Operation => OPERATIONS.has(action.kind);

/** What customers and the operator were promised, and nothing may undo. Times are milliseconds since 1970. */
export class Answered {
  /** When each order expires at the earliest. */
  readonly deadlines = new Map<string, number>();
  /** The customers that each order was passed to: at most one. */
  readonly receivers = new Map<string, Set<string>>();
  /** How often each customer of a sale has joined its waitlist, or may have; and when a customer who has not joined since left it. */
  readonly joins = new Map<string, number>();
  readonly leaves = new Map<string, number>();
  /** When the last refund of each sale that was acknowledged was requested; µs since 1970. */
  readonly refunds = new Map<number, number>();
  /** Joins of each place without an answer: they may arrive later. */
  readonly joining = new Map<string, number>();
}

export const placeOf = (sale: number, user: string): string => `${sale} ${user}`;

/** Sends one. Its owner must be set. @throws what the pipeline throws */
export async function operate(
  action: Action & Operation,
  saleId: number,
  { lifecycle, waitlist, refunds }: Parts,
  { orders, history }: Clients,
  answered: Answered,
): Promise<null> {
  if (action.kind === 'refund-sale') {
    const askedUs = nowUs();
    const refund = await refunds.request(saleId, { returnUnits: true, actor: 'operator' });
    if (typeof refund === 'object' && refund !== null) answered.refunds.set(saleId, askedUs);
    return null;
  }
  const { deadlines, receivers, joins, leaves, joining } = answered;
  const { user } = action;
  const id = orders.get(user)!;
  const place = placeOf(saleId, user);
  const joined = joins.get(place) ?? 0;
  switch (action.kind) {
    case 'extend': {
      const result = await lifecycle.extend(id, action.seconds, 'operator');
      if (result.kind === 'extended')
        deadlines.set(id, Math.max(deadlines.get(id) ?? 0, Date.parse(result.order.expiresAt)));
      break;
    }
    case 'transfer': {
      const { kind } = await lifecycle.transfer(id, action.to, 'operator');
      if (kind === 'transferred' || kind === 'unchanged')
        receivers.set(id, (receivers.get(id) ?? new Set()).add(action.to));
      break;
    }
    case 'join': {
      leaves.delete(place);
      joining.set(place, (joining.get(place) ?? 0) + 1);
      joins.set(place, joined + 1);
      // Whoever waits may get an order at any time.
      const asked = { id: history.length, saleId, userId: user, invokedUs: nowUs(), units: action.units };
      history.push({ ...unanswered, ...asked, op: 'purchase' });
      const result = await waitlist.join(saleId, user, action.units);
      joining.set(place, joining.get(place)! - 1);
      if (typeof result !== 'object' || result?.kind !== 'joined') joins.set(place, joins.get(place)! - 1);
      break;
    }
    case 'leave':
      await waitlist.leave(saleId, user);
      if (joins.get(place) === joined && (joining.get(place) ?? 0) === 0) leaves.set(place, virtual.nowMs);
  }
  return null;
}

const TERMS = `
  UPDATE sales SET waitlist = CASE WHEN $2::int IS NULL THEN 'notify' ELSE 'hold' END, waitlist_hold_s = $2,
    limit_group = CASE WHEN $3::int IS NULL THEN NULL ELSE 'group ' || $4::int END, max_per_customer = $3 WHERE id = ANY($1::int[])`;
const OPEN = `
  WITH opened AS (UPDATE sales SET starts_at = clock_timestamp() + $2 * interval '1 millisecond' WHERE id = $1), made AS (
    INSERT INTO sale_groups (sale_id, name, opens_at, has_codes) VALUES ($1, 'group', clock_timestamp() + $3 * interval '1 millisecond', true)
  )
  INSERT INTO sale_codes (sale_id, code, group_name, uses) VALUES ($1, $4, 'group', $5)`;

interface Sold {
  readonly n: number;
  readonly workload: Workload;
}

/** The sales of the same limit groups. */
export const twinsOf = ({ sales }: { readonly sales: readonly Sold[] }) =>
  sales
    .filter(({ workload }) => workload.extras?.perCustomer !== undefined)
    .map(({ n }) => ({ id: twinOf(n), stock: TWIN_STOCK, maxPerOrder: 1 }));

/** Gives a sale its terms, before anything has loaded it. */
export async function setTerms({ sql }: ExploreServers, { n, workload }: Sold): Promise<void> {
  const { holdS, perCustomer } = workload.extras ?? {};
  if (holdS === undefined && perCustomer === undefined) return;
  await sql.query(TERMS, [perCustomer === undefined ? [n] : [n, twinOf(n)], holdS, perCustomer, n]);
}

/** Sets when a sale opens, and for whom: as it begins, but before it is loaded. */
export async function setOpening({ sql }: ExploreServers, { n, workload }: Sold): Promise<void> {
  const { code } = workload.extras ?? {};
  if (code !== undefined) await sql.query(OPEN, [n, code.allInMs, code.groupInMs, CODE, code.uses]);
}
