/** What a load of a sale reads in Postgres, with a copy of the buyers in Redis for lua/sale/load.lua. */
import type { Redis } from 'ioredis';
import type { Buyer, OrderTable } from '../postgres/orders.ts';
import { readMember, recordOf } from './sale-records.ts';

/** Expiry of a copy of the buyers whose process died before it was used, seconds. */
const COPY_TTL_S = 300;

/** Copies the buyers that Postgres knows to a new key. `extraUnits`: their units beyond one for each. */
async function copyBuyers(redis: Redis, saleId: number, pages: AsyncIterable<readonly Buyer[]>) {
  const key = `stampede:{sale:${saleId}}:buyers:${crypto.randomUUID()}`;
  let extraUnits = 0;
  for await (const page of pages) {
    await redis.hset(key, Object.fromEntries(page.map((buyer) => [buyer.userId, recordOf(buyer)])));
    for (const { quantity } of page) extraUnits += quantity - 1;
    await redis.expire(key, COPY_TTL_S);
  }
  return { key, extraUnits };
}

/** Units, buyers and reservations at one instant in Postgres. Later changes reach Redis through the outbox. */
export async function takeSnapshot(redis: Redis, orders: OrderTable, saleId: number, reservations: string) {
  const members = await redis.zrange(reservations, '0', '-1');
  const reserved = members.map((member) => readMember(saleId, member));
  const ids = reserved.map(({ orderId }) => orderId);
  const snapshot = await orders.snapshot(saleId, ids, (pages) => copyBuyers(redis, saleId, pages));
  return { ...snapshot, committed: reserved.filter(({ orderId }) => snapshot.known.has(orderId)) };
}
