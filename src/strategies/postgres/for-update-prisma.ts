/**
 * `for-update-prisma`: `for-update` in idiomatic Prisma: an interactive transaction, with model operations wherever Prisma has
 * them, and raw SQL only for the row lock, which Prisma lacks. It shows what the ORM costs.
 */

import { limits } from '../../config/limits.ts';
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { Attempt } from '../../domain/order.ts';
import { accepted } from '../../domain/outcome.ts';
import type { Prisma } from '../../generated/prisma/client.ts';
import { paymentDeadline } from '../../store/postgres/insert-orders.ts';
import { SALE_STATE, type SaleState } from '../../store/postgres/purchases.ts';
import { existing, type Tried } from '../kit/placing.ts';
import { postgresStrategy, rejectionOf } from '../kit/postgres-strategy.ts';
import { ALL_GUARANTEES, type Strategy, type StrategyContext } from '../strategy.ts';

export const description: StrategyDescription = {
  name: 'for-update-prisma',
  summary: "for-update through Prisma's interactive transaction; shows what the ORM costs.",
  store: 'postgres',
  usesLock: false,
  roundTrips: 7,
  guarantees: ALL_GUARANTEES,
};

type LockedSale = SaleState & {
  readonly priceCents: number;
  readonly points: number;
  readonly createdAt: Date;
  readonly expiresAt: Date;
  readonly limitGroup: string | null;
};

type Sql = Pick<typeof Prisma, 'raw' | 'sql'>;

/** Split where the customer and the window go. */
const DEADLINE = paymentDeadline('sales.id', '?', 'coalesce(payment_window_s, ?)').split('?');

export function create(context: StrategyContext): Strategy {
  const { postgres } = context;
  /** Every other strategy starts without Prisma. */
  const loading = Promise.all([postgres.prisma(), import('../../generated/prisma/client.ts')]);
  loading.catch(() => {}); // the attempts report it

  async function place({ raw, sql }: Sql, tx: Prisma.TransactionClient, attempt: Attempt): Promise<Tried> {
    const { saleId, userId, orderId, quantity } = attempt;
    const [sale = null] = await tx.$queryRaw<LockedSale[]>`
      SELECT ${raw(SALE_STATE)}, price_cents AS "priceCents", limit_group AS "limitGroup", clock_timestamp() AS "createdAt",
             CASE WHEN ${quantity}::int <= max_per_order THEN points_earned(price_cents * ${quantity}::int) END AS points,
             ${sql(DEADLINE, context.paymentWindowS, userId)} AS "expiresAt"
      FROM sales WHERE id = ${saleId} FOR UPDATE`;
    if (sale === null) return { kind: 'unknown-sale' };
    const order = await tx.order.findFirst({
      where: { saleId, userId, status: { in: ['pending', 'paid'] } },
      select: { id: true, status: true, quantity: true },
    });
    if (order !== null) return existing(attempt, order as Parameters<typeof existing>[1]);
    const rejection = rejectionOf(sale, attempt);
    if (rejection !== null) return rejection;
    const { priceCents, points, createdAt, expiresAt, limitGroup } = sale; // by Postgres's clock
    const terms = { quantity, status: 'pending', priceCents, createdAt, expiresAt, limitGroup } as const;
    await tx.order.create({ data: { id: orderId, saleId, userId, ...terms } });
    await tx.pointsEntry.create({
      data: { userId, sourceType: 'order', sourceId: orderId, points, createdAt },
    });
    await tx.sale.update({
      where: { id: saleId },
      data: { sold: { increment: quantity }, version: { increment: 1 } },
      select: { id: true },
    });
    return accepted(attempt);
  }

  const strategy = postgresStrategy(context, description, async (attempt) => {
    const [prisma, module] = await loading;
    return prisma.$transaction((tx) => place(module.Prisma, tx, attempt), {
      maxWait: limits.postgresConnectMs,
      timeout: limits.postgresStatementMs,
    });
  });
  return { ...strategy, ready: loading };
}
