/**
 * Orders that are reserved in Redis and not committed in Postgres yet: with CONFIRM=accepted the customer has their id from the
 * 202. Such an order exists, so requests about it are answered `busy`, not `unknown-order`.
 */
import type { Order } from '../domain/order.ts';
import type { OrderTable } from '../store/postgres/orders.ts';
import type { SaleMirror } from '../store/redis/sale-mirror.ts';
import { saleOf } from './purchase.ts';

export interface UncommittedOrders {
  /**
   * Whether an order that Postgres did not have is reserved, or was committed since. Looks in the one sale that the id names.
   * @param userId only if it is this customer's; null: any customer's
   * @throws what the stores throw
   */
  has(orderId: string, userId: string | null): Promise<boolean>;
  /** The customer's active order, or that it is reserved; else the latest closed one, or null. @throws what the stores throw */
  ofUser(saleId: number, userId: string): Promise<Order | 'uncommitted' | null>;
}

/** @param mirror null for a strategy that does not reserve */
export function uncommittedOrders(mirror: SaleMirror | null, orders: OrderTable): UncommittedOrders {
  return {
    async has(orderId, userId) {
      if (mirror === null) return false;
      if (await mirror.isReserved(saleOf(orderId), orderId, userId)) return true;
      // It may have been committed between the first read of Postgres and that of Redis.
      const order = await orders.get(orderId);
      return order !== null && (userId === null || order.userId === userId);
    },
    async ofUser(saleId, userId) {
      const order = await orders.ofUser(saleId, userId);
      if (mirror === null || order?.status === 'pending' || order?.status === 'paid') return order;
      if (await mirror.isReservedFor(saleId, userId)) return 'uncommitted';
      return orders.ofUser(saleId, userId); // it may have been committed since
    },
  };
}
