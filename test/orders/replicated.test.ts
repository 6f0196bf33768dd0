/**
 * CONFIRM=accepted with a primary of Redis that loses the link to its replica, continues to answer, and dies. The replica takes
 * its place. Until then no commit reaches Postgres, so Redis alone has the orders. ACCEPTED=10000 accepts 10,000 before the loss.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { HistoryRecord } from '../../lab/history.ts';
import { users } from '../support/client.ts';
import { openReplicated, type Replicated, waitingFor } from '../support/lock-groups.ts';
import { type TestSale, World } from '../support/world.ts';

const BEFORE = Number(process.env.ACCEPTED ?? 600);
const AFTER = 100;
/** Few: what the replica acknowledges passes through this process, too. */
const IN_FLIGHT = 16;
const TIMEOUT_MS = 600_000;

let pair: Replicated;
beforeEach(async () => {
  pair = await openReplicated(waitingFor(1));
});
afterEach(() => pair.close());

/** Each customer asks once, IN_FLIGHT at a time. */
async function rush(sale: TestSale, crowd: string[]): Promise<void> {
  const customer = async () => {
    for (let user = crowd.pop(); user !== undefined; user = crowd.pop()) {
      const answer = await sale.request('purchase', user);
      if (answer?.status === 503) await sleep(1_000); // until the service waits for the replica again
    }
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, customer));
}

const accepted = ({ history }: TestSale['ledger']): HistoryRecord[] =>
  history.filter(({ status }) => status === 202);

/**
 * Sells before and after the link is cut, and fails over.
 * @param least orders that must be acknowledged after the cut
 * @returns those that were
 */
async function sellThroughFailover(world: World, sale: TestSale, least: number): Promise<HistoryRecord[]> {
  const [service] = world.services as [World['services'][0]];
  service.links.postgres.set('refuse');
  service.links.postgres.cut();
  // An order that a late replica on a slow machine does not acknowledge must be committed first, so it is not accepted.
  for (let n = 0; accepted(sale.ledger).length < BEFORE; n++)
    await rush(sale, users(BEFORE - accepted(sale.ledger).length, `before-${n}`));
  const before = accepted(sale.ledger).length;
  pair.replication[0]!.set('black-hole');
  for (let left = AFTER, n = 0; left > 0; left = before + least - accepted(sale.ledger).length)
    await rush(sale, users(left, `after-${n++}`));
  const after = accepted(sale.ledger).slice(before);
  await service.kill();
  await pair.primary.kill();
  const replica = new Redis(pair.replicas[0]!.port);
  await replica.replicaof('NO', 'ONE');
  replica.disconnect();
  service.links.redis.lead(pair.replicas[0]!.port);
  service.links.postgres.set('pass');
  await service.start();
  return after;
}

async function open(env: Record<string, string>): Promise<World> {
  const fixed = { CONFIRM: 'accepted', ADMISSION_MS: '60000', REDIS_URL: pair.primary.url };
  return World.open({ strategy: 'lua', env: { ...fixed, ...env } });
}

async function untilIdle(sale: TestSale): Promise<void> {
  const redis = new Redis(pair.replicas[0]!.port);
  await sale.untilIdle(redis);
  redis.disconnect();
}

it(
  'REDIS_WAIT=1 loses no order that was answered with 202',
  async () => {
    await using world = await open({ REDIS_WAIT: '1' });
    const sale = await world.openSale(3 * BEFORE);
    await sale.buy('first');
    expect(await sellThroughFailover(world, sale, 0)).toEqual([]);
    await untilIdle(sale);
    expect(await sale.violations()).toEqual([]);
  },
  TIMEOUT_MS,
);

it(
  'REDIS_WAIT=0 loses every order that was answered with 202 after the link was lost',
  async () => {
    await using world = await open({ REDIS_WAIT: '0' });
    const sale = await world.openSale(3 * BEFORE);
    const after = await sellThroughFailover(world, sale, AFTER);
    expect(after).toHaveLength(AFTER);
    await untilIdle(sale);
    const ids = accepted(sale.ledger).map(({ orderId }) => orderId);
    const { rows } = await world.stores.sql.query<{ id: string }>(
      'SELECT id FROM orders WHERE id = ANY($1)',
      [ids],
    );
    const found = new Set(rows.map(({ id }) => id));
    expect(after.filter(({ orderId }) => found.has(orderId!))).toEqual([]);
  },
  TIMEOUT_MS,
);
