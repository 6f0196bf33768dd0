/** What a load of a sale reads in Postgres, with copies of buyers and reservations in Redis for lua/sale/load.lua. */
import type { Redis } from 'ioredis';
import type { Buyer, OrderTable } from '../postgres/orders.ts';
import { readMember, recordOf } from './sale-records.ts';

/** Expiry of a copy of the buyers whose process died before it was used, seconds. */
const COPY_TTL_S = 300;
/** Members of a sorted set that one command reads or writes; Redis serves others after it. */
const PAGE = 1_000;

/** Copies the buyers that Postgres knows to a new key. `count`: how many; `extraUnits`: their units beyond one for each. */
async function copyBuyers(redis: Redis, saleId: number, pages: AsyncIterable<readonly Buyer[]>) {
  const key = `stampede:{sale:${saleId}}:buyers:${crypto.randomUUID()}`;
  let count = 0;
  let extraUnits = 0;
  for await (const page of pages) {
    await redis.hset(key, Object.fromEntries(page.map((buyer) => [buyer.userId, recordOf(buyer)])));
    count += page.length;
    for (const { quantity } of page) extraUnits += quantity - 1;
    await redis.expire(key, COPY_TTL_S);
  }
  return { key, count, extraUnits };
}

/** The members of a sorted set that match a pattern, in pages: some twice, and those that are there throughout at least once. */
export async function* membersOf(
  redis: Redis,
  key: string,
  pattern = '*',
): AsyncGenerator<readonly string[]> {
  let cursor = '0';
  do {
    const [next, found] = await redis.zscan(key, cursor, 'MATCH', pattern, 'COUNT', PAGE);
    yield found.filter((_, i) => i % 2 === 0); // the others are their scores
    cursor = next;
  } while (cursor !== '0');
}

/** Copies members of a sorted set to a new one. */
async function copyMembers(redis: Redis, saleId: number, members: readonly string[]): Promise<string> {
  const key = `stampede:{sale:${saleId}}:reservations:${crypto.randomUUID()}`;
  for (let from = 0; from < members.length; from += PAGE) {
    await redis.zadd(key, ...members.slice(from, from + PAGE).flatMap((member) => [0, member]));
    await redis.expire(key, COPY_TTL_S);
  }
  return key;
}

/**
 * Units, buyers and reservations at one instant in Postgres. Later changes reach Redis through the outbox.
 * @returns also `committed`, the key of a copy of the reservations that Postgres has
 */
export async function takeSnapshot(redis: Redis, orders: OrderTable, saleId: number, reservations: string) {
  const members = new Map<string, string>(); // order id -> member
  for await (const page of membersOf(redis, reservations))
    for (const member of page) members.set(readMember(saleId, member).orderId, member);
  const snapshot = await orders.snapshot(saleId, [...members.keys()], (pages) =>
    copyBuyers(redis, saleId, pages),
  );
  const known = [...members].filter(([orderId]) => snapshot.known.has(orderId));
  const committed = await copyMembers(
    redis,
    saleId,
    known.map(([, member]) => member),
  );
  return { ...snapshot, committed };
}
