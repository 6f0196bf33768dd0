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

const BEFORE = Number(process.env.ACCEPTED ?? 100);
const AFTER = 30;
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

it.each([
  ['1', 'no order that was answered with 202', 0],
  ['0', 'every order that was answered with 202 after the link was lost', AFTER],
])(
  'REDIS_WAIT=%s loses %s',
  async (REDIS_WAIT, _which, lost) => {
    const fixed = { CONFIRM: 'accepted', ADMISSION_MS: '60000', REDIS_URL: pair.primary.url };
    await using world = await World.open({ strategy: 'lua', processes: true, env: { ...fixed, REDIS_WAIT } });
    const sale = await world.openSale(3 * BEFORE);
    await sale.buy('first');
    const after = await sellThroughFailover(world, sale, lost);
    expect(after).toHaveLength(lost);
    const redis = new Redis(pair.replicas[0]!.port);
    await sale.untilIdle(redis);
    redis.disconnect();
    const ids = after.map(({ orderId }) => orderId);
    if (lost === 0) expect(await sale.violations()).toEqual([]);
    const find = 'SELECT FROM orders WHERE id = ANY($1)';
    expect(await world.stores.sql.query(find, [ids])).toMatchObject({ rowCount: 0 });
  },
  TIMEOUT_MS,
);
