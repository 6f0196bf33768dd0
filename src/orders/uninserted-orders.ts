/** Why Postgres did not insert orders of a batch: an earlier order, too few units, no sale, or a sale that was loaded in another epoch. */
import {
  type ClaimedReservation,
  type CommitResult,
  type PlacedOrder,
  type Reservation,
  type Retry,
  shortage,
} from '../domain/outcome.ts';
import type { OrderTable } from '../store/postgres/orders.ts';
import type { PostgresStore } from '../store/postgres/pool.ts';

interface Stores {
  readonly orders: OrderTable;
  readonly postgres: PostgresStore;
}

/**
 * Reads why. An order that is found counts once it is replicated.
 * @returns a function that gives the result of each; null: the units are free, so whatever stopped it is gone by now
 * @throws what Postgres throws
 */
export async function explanations(
  { orders, postgres }: Stores,
  reservations: readonly ClaimedReservation[],
): Promise<(reservation: ClaimedReservation) => CommitResult | null> {
  const before = postgres.timeline();
  const found = await conflictingOrders(orders, reservations);
  if (found.size > 0) await postgres.replicated(before);
  const without = reservations.filter(({ orderId }) => !found.has(orderId));
  const sales = await statesOf(postgres, new Set(without.map(({ saleId }) => saleId)));
  return ({ orderId, saleId, userId, quantity, epoch }): CommitResult | null => {
    const order = found.get(orderId);
    if (order !== undefined) {
      const kind = order.orderId === orderId ? 'accepted' : 'replayed';
      const { status } = order;
      const placed = { orderId: order.orderId, saleId, userId, status, quantity: order.quantity };
      return { kind, order: placed, durable: true };
    }
    const sale = sales.get(saleId);
    if (sale === undefined) return { kind: 'unknown-sale' };
    if (sale.epoch !== null && epoch !== null && sale.epoch !== epoch) return OF_ANOTHER_EPOCH;
    return shortage(sale.free, quantity);
  };
}

const OF_ANOTHER_EPOCH: Retry = { kind: 'retry', reason: 'reserved-in-another-epoch' };

/** By order id, the order that a reservation conflicted with: its own, by an earlier try, or another one of the customer. */
async function conflictingOrders(
  table: OrderTable,
  reservations: readonly Reservation[],
): Promise<ReadonlyMap<string, PlacedOrder>> {
  const active = await table.activeOf(reservations);
  const byCustomer = new Map(active.map((order) => [`${order.saleId} ${order.userId}`, order]));
  const activeOf = ({ saleId, userId }: Reservation) => byCustomer.get(`${saleId} ${userId}`);
  const without = reservations.filter((r) => activeOf(r) === undefined).map((r) => r.orderId);
  const own = without.length === 0 ? [] : await table.existing(without);
  const byId = new Map(own.map((order) => [order.orderId, order]));
  return new Map(
    reservations.flatMap((reservation) => {
      const order = activeOf(reservation) ?? byId.get(reservation.orderId);
      return order === undefined ? [] : [[reservation.orderId, order] as const];
    }),
  );
}

interface SaleState {
  readonly id: number;
  readonly free: number;
  /** In which it was last loaded; null: it was not. */
  readonly epoch: number | null;
}

async function statesOf(
  { pool }: PostgresStore,
  saleIds: ReadonlySet<number>,
): Promise<ReadonlyMap<number, SaleState>> {
  if (saleIds.size === 0) return new Map();
  const { rows } = await pool.query<SaleState>({
    name: 'free-units',
    text: 'SELECT id, stock - sold AS free, mirror_epoch AS epoch FROM sales WHERE id = ANY($1::int[])',
    values: [[...saleIds]],
  });
  return new Map(rows.map((sale) => [sale.id, sale]));
}
