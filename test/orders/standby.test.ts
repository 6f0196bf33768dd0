/** Promotion of a standby of Postgres in the middle of a sale. */
import pg from 'pg';
import { expect, it } from 'vitest';
import type { HistoryRecord } from '../../lab/history.ts';
import { openPostgresPair, type PostgresPair } from '../../lab/servers/postgres-pair.ts';
import { fromPool } from '../../src/locks/adapters/pg.ts';
import { create } from '../../src/locks/postgres-advisory.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { type Answer, cancel, eventually, pay, post, users } from '../support/client.ts';
import { failovers, SEEDS, sellThrough, TIMEOUT_MS } from '../support/failover.ts';
import { type BREAKS, breakWaits, SAFE_STRATEGIES } from '../support/faults.ts';
import { openEnsembleStores } from '../support/stores.ts';
import { bySize } from '../support/tier.ts';
import { World } from '../support/world.ts';

const STOCK = 120;

async function openWorld(pair: PostgresPair, strategy: string, env = {}, services = 2): Promise<World> {
  return World.open({ strategy, services, env, stores: await openEnsembleStores({ pair }) });
}

it.each(failovers([...new Set(['lua', 'group-commit', ...SAFE_STRATEGIES])], ['kill', 'cut', 'stop']))(
  '%s keeps every promise when the synchronous standby is promoted after a %s of the primary',
  async (strategy, ending) => {
    for (const seed of SEEDS) {
      await using pair = await openPostgresPair({ synchronous: true });
      await using world = await openWorld(pair, strategy);
      await sellThrough(world, `Postgres: ${ending}`, seed, () => pair.failOver(ending));
    }
  },
  TIMEOUT_MS,
);

it.each(
  bySize({
    core: ['lua'],
    full: ['lua', 'group-commit'],
    nightly: ['lua', 'segmented-lock', 'group-commit'],
  }),
)('%s: an asynchronous standby lacks the last orders, and their customers buy again', async (strategy) => {
  await using pair = await openPostgresPair({ synchronous: false });
  await using world = await openWorld(pair, strategy);
  const sale = await world.openSale(STOCK);
  await sale.rush(users(20, 'before'));
  await pair.cutReplication();
  const lost = users(30, 'lost');
  const rush = async () => {
    const counts = await sale.rush(lost);
    expect((counts['201'] ?? 0) + (counts['200'] ?? 0)).toBe(lost.length); // 200: an earlier attempt got no answer
  };
  await rush();
  await pair.failOver('kill');
  const first = sale.ledger.history.length;
  await rush();
  expect(await sale.sellOut()).toEqual([]);
  await sale.untilIdle();
  // The others have their orders. Redis still had reservations of some lost orders, which are committed again.
  const isLost = ({ userId }: HistoryRecord): boolean => userId.includes('-lost-');
  const second = sale.ledger.history.slice(first).filter(isLost);
  const replayed = new Set(
    second.flatMap(({ outcome, orderId }) => (outcome === 'replayed' ? [orderId] : [])),
  );
  const isJudged = (one: HistoryRecord): boolean =>
    !isLost(one) || second.includes(one) || replayed.has(one.orderId);
  expect(await sale.violations(isJudged)).toEqual([]);
});

const STRATEGIES = ['lua', 'group-commit'];

/** Requests that commit; what each names exists before the standby is cut off. */
async function committing(world: World): Promise<Record<string, () => Promise<Answer>>> {
  const sale = await world.openSale(STOCK);
  const url = await world.url();
  const [paid, cancelled] = await Promise.all(['paid', 'cancelled'].map((user) => sale.buy(user)));
  const points = { sourceType: 'test', sourceId: '1', points: 1 };
  return {
    purchase: () => sale.attempt('ann', url),
    pay: () => pay(url, paid!.body.orderId, `n-${paid!.body.orderId}`),
    cancel: () => cancel(url, cancelled!.body.orderId),
    restock: () => post(`${url}/sales/${sale.id}/restock`, { units: 1 }),
    points: () => post(`${url}/users/${world.strategy}/points`, points),
    create: () => post(`${url}/sales`, { name: 'late', stock: 1, priceCents: 1 }),
  };
}

it.each(
  bySize<(keyof typeof BREAKS)[]>({
    core: ['cancel'],
    full: ['cancel', 'crash'],
    nightly: ['cancel', 'terminate', 'crash'],
  }),
)(
  'nothing is acknowledged that the synchronous standby lacks, after a %s of the wait for it',
  async (how) => {
    await using pair = await openPostgresPair({ synchronous: true });
    const worlds: World[] = [];
    // One after the other: they share this process.
    for (const strategy of STRATEGIES) worlds.push(await openWorld(pair, strategy, {}, 1));
    worlds.push(await openWorld(pair, 'lua', { CONFIRM: 'accepted' }, 1));
    await using _all = {
      async [Symbol.asyncDispose]() {
        await Promise.all(worlds.map((world) => world[Symbol.asyncDispose]()));
      },
    };
    const requests = await Promise.all(worlds.map(committing));
    await pair.cutReplication();

    const answers: string[] = [];
    const promised = new Set<unknown>(); // by the last service: Redis keeps the order until both servers of Postgres have it
    const asking = Promise.all(
      worlds.flatMap(({ strategy }, i) =>
        Object.entries(requests[i]!).map(async ([name, send]) => {
          // The second and the third try find what the first has committed.
          for (let tries = 0; tries < 3; tries++) {
            const { status, body } = await send();
            if (i === STRATEGIES.length && name === 'purchase' && status < 300) promised.add(body.orderId);
            else if (status !== 503) answers.push(`${strategy} ${name} ${tries}: ${status}`);
          }
        }),
      ),
    );
    let isOver = false;
    void asking.finally(() => {
      isOver = true;
    });
    await breakWaits(pair, how, () => isOver);
    await asking;
    expect(answers, how).toEqual([]);

    await pair.failOver('kill');
    for (const [i, { purchase }] of requests.entries()) {
      const { status } = await eventually(purchase!, (answer) => answer.status !== 503);
      expect([200, 201, 202], worlds[i]!.strategy).toContain(status);
    }
    expect(promised.size).toBe(1);
    const kept = () => pair.sql().query('SELECT FROM orders WHERE id = ANY($1)', [[...promised]]);
    await expect.poll(kept).toMatchObject({ rowCount: 1 });
  },
  2 * TIMEOUT_MS, // it starts three services
);

it('a standby to which the only address leads gives no reads and no locks', async () => {
  await using pair = await openPostgresPair({ synchronous: false });
  const { standbyUrl } = pair;
  const store = openPostgres(standbyUrl, () => {});
  await expect(store.pool.query('SELECT 1')).rejects.toThrow('this Postgres is a standby');
  await store.close();
  const pool = new pg.Pool({ connectionString: standbyUrl });
  const lock = await create({ postgres: fromPool(pool) });
  expect(await lock.acquire('r', { ttlMs: 5_000, waitMs: 0 })).toMatchObject({
    kind: 'unavailable',
    reason: 'postgres-read-only',
  });
  await lock.close();
  await pool.end();
});
