/**
 * The contract of every strategy, on real servers, over HTTP, against two services; test/contract/model.test.ts has the decisions. What
 * the strategies of a kind share is tested with one of the kind. A strategy that is declared unsafe stays in the suite, and the suite must
 * see it fail. The services of a strategy that decides in Postgres run without Redis.
 */

import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { redisNow } from '../../lab/audit/reader.ts';
import { strategies } from '../../src/strategies/registry.ts';
import {
  type Answer,
  attempt,
  buy,
  call,
  cancel,
  createSale,
  eventually,
  patch,
  pay,
  post,
  users,
} from '../support/client.ts';
import { judge } from '../support/judge.ts';
import { opened } from '../support/opened.ts';
import { type ServiceProcess, spawnService, startService, type TestService } from '../support/service.ts';
import { envOf, openTestStores, type TestStores } from '../support/stores.ts';
import { holds } from './holds.ts';
import { orderLife } from './order-life.ts';
import { transfers } from './transfers.ts';

interface Variant {
  /** False: only what a store may decide otherwise. */
  readonly isWhole?: boolean;
  readonly open?: () => Promise<TestStores>;
}

/** One of each kind: in Redis with a commit behind it, in a transaction, in batches. */
const KINDS = ['lua', 'for-update', 'group-commit'];
/** Two processes of the operating system sell, of which one is killed; the others are two services in this one. */
const SPAWNED = ['lua', 'group-commit'];

/** @param variant how much of it runs, and on which stores; by default all, on the shared servers */
export function strategyContract(
  name: string,
  { isWhole = true, open = openTestStores }: Variant = {},
): void {
  const { guarantees, store } = strategies.get(name)!.description;
  const safe = guarantees.neverOversells;
  const stores = opened(open);
  const start = isWhole && SPAWNED.includes(name) ? spawnService : startService;
  let a: ServiceProcess | TestService;
  let b: ServiceProcess | TestService;

  const env = (strategy = name) => ({
    STRATEGY: strategy,
    ...envOf(stores),
    REDIS_URL: strategies.get(strategy)!.description.store === 'postgres' ? 'none' : stores.redisUrl,
  });
  const either = (i: number) => (i % 2 === 0 ? a.url : b.url);

  const now = (saleId: number, answers: readonly Answer[] = []) => judge(stores.sql, null, saleId, answers);

  /** The audit finds nothing wrong in Postgres now, nor in Redis once nothing is in progress. */
  async function expectSound(saleId: number, answers: readonly Answer[] = []): Promise<void> {
    expect((await now(saleId, answers)).findings).toEqual([]);
    if (store === 'postgres') return;
    await expect.poll(() => judge(stores.sql, stores.redis, saleId)).toMatchObject({ findings: [] });
  }

  /** @param answers that must agree with the orders */
  async function expectSold(saleId: number, units: number, answers: readonly Answer[] = []): Promise<void> {
    expect(await now(saleId)).toMatchObject({ sold: units, active: units });
    await expectSound(saleId, answers);
  }

  beforeAll(async () => {
    [a, b] = await Promise.all([start(env()), start(env())]);
  });

  afterAll(() => Promise.all([a, b].map((service) => service?.[Symbol.asyncDispose]())));

  describe(`strategy ${name}`, () => {
    purchases();
    pausing();
    if (!safe) overselling();
    const urls = () => [a.url, b.url] as const;
    if (safe && isWhole) transfers({ stores, urls, expectSold });
    if (store === 'postgres' && isWhole) holds({ stores, urls, expectSold });
    if (KINDS.includes(name)) {
      orderLife({ isWhole, stores, urls, expectSold, expectSound });
      quantities();
    }
    if (isWhole && ['segmented-lock', ...SPAWNED].includes(name)) continuing();
    if (start === spawnService) dying();
  });

  function purchases(): void {
    it('answers a repeat with the same order', async () => {
      const sale = await createSale(a.url, 10);
      const first = await buy(a.url, sale.id, 'twice');
      expect(first).toMatchObject({
        status: 201,
        body: { saleId: sale.id, userId: 'twice', replayed: false },
      });
      expect(first.headers.get('location')).toBe(`/orders/${first.body.orderId}`);
      const second = await buy(b.url, sale.id, 'twice');
      expect(second).toMatchObject({ status: 200, body: { orderId: first.body.orderId, replayed: true } });
      expect(await buy(a.url, 2_000_000, 'nobody')).toMatchObject({ status: 404, problem: 'unknown-sale' });
      const order = await call(`${b.url}/orders/${first.body.orderId}`);
      expect(order).toMatchObject({ status: 200, body: { status: 'pending', priceCents: 500 } });
      await expectSold(sale.id, 1);
    });

    it("places one order for a customer's forty concurrent attempts", async () => {
      const sale = await createSale(a.url, 100);
      const answers = await Promise.all(
        Array.from({ length: 40 }, (_, i) => buy(either(i), sale.id, 'impatient')),
      );
      expect(new Set(answers.map((answer) => answer.body.orderId)).size).toBe(1);
      expect((await now(sale.id)).active).toBe(1);
      expect((await buy(a.url, sale.id, 'Impatient')).status).toBe(201); // names are compared as they are written
      // None: its answer was lost, and a repeat found the order.
      if (safe) expect(answers.filter((answer) => answer.status === 201).length).toBeLessThanOrEqual(1);
    });

    it('releases the unit when Postgres rejects the order', async () => {
      await stores.sql.query(`
        CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
          $$ BEGIN IF NEW.user_id LIKE 'refused%' THEN RAISE EXCEPTION 'refused for the test'; END IF; RETURN NEW; END $$;
        CREATE OR REPLACE TRIGGER refuse BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION refuse();`);
      const sale = await createSale(a.url, 8);
      const asked = [...users(12, 'refused'), ...users(7, 'welcome')];
      const answers = await Promise.all(
        asked.map((user, i) =>
          user.startsWith('refused') ? attempt(either(i), sale.id, user) : buy(either(i), sale.id, user),
        ),
      );
      // The others of the same batch are placed; a refused attempt holds no unit.
      for (const [i, answer] of answers.entries()) {
        const refused = asked[i]!.startsWith('refused');
        if (refused) expect([503, 409]).toContain(answer.status);
        else if (safe) expect([201, 409]).toContain(answer.status);
      }
      if (safe) {
        // A process that was sold out learns of the released units a moment later.
        const sellAll = async () => {
          for (const user of users(8, 'then')) await buy(a.url, sale.id, user);
          return now(sale.id);
        };
        await expect.poll(sellAll).toMatchObject({ sold: 8 });
        await expectSold(sale.id, 8);
      }
      await stores.sql.query('DROP TRIGGER refuse ON orders');
    });
  }

  function continuing(): void {
    it('continues a sale of another strategy', async () => {
      const other = name === 'lua' ? 'for-update' : 'lua';
      const sale = await createSale(a.url, 10);
      for (const user of users(2)) await buy(a.url, sale.id, user);
      await using before = await startService(env(other));
      for (const user of users(6)) await buy(before.url, sale.id, user);
      await before.stop();
      await expectSold(sale.id, 6);
      const answers = await Promise.all(users(20).map((user, i) => buy(either(i), sale.id, user)));
      const [old, others] = [answers.slice(0, 6), answers.slice(6)];
      expect(old.map(({ status }) => status)).toEqual(old.map(() => 200));
      expect(others.filter(({ status }) => status < 300)).toHaveLength(4);
      await expectSold(sale.id, 10);
    });
  }

  function dying(): void {
    it('keeps every promise when a process is killed in the middle of the run', async () => {
      const sale = await createSale(a.url, 300, { maxPerOrder: 5 });
      const wanted = (i: number) => 1 + (i % 5);
      const rush = Promise.allSettled(
        users(300).map((user, i) => attempt(either(i), sale.id, user, wanted(i))),
      );
      await expect.poll(async () => (await now(sale.id)).sold, { interval: 25 }).toBeGreaterThan(10);
      await (a as ServiceProcess).kill();
      const answers = (await rush).flatMap((result) => (result.status === 'fulfilled' ? [result.value] : []));
      expect((await now(sale.id, answers)).findings).toEqual([]);
      a = await start(env());
      await expectSound(sale.id, answers);
      const rest = await Promise.all(users(300).map((user, i) => buy(either(i), sale.id, user)));
      // Those without an order have taken one unit each.
      await expectSold(sale.id, 300, [...answers, ...rest]);
    });
  }

  function quantities(): void {
    it('sells several units whole or not at all', async () => {
      const sale = await createSale(a.url, 10, { maxPerOrder: 4 });
      const first = await buy(a.url, sale.id, 'four', 4);
      expect(first).toMatchObject({ status: 201, body: { quantity: 4, replayed: false } });
      expect((await buy(b.url, sale.id, 'more', 4)).status).toBeLessThan(300);
      const short = { status: 409, problem: 'not-enough-units' };
      expect(await buy(a.url, sale.id, 'three', 3)).toMatchObject({ ...short, body: { remaining: 2 } });
      const overLimit = { status: 400, problem: 'invalid-request' };
      expect(await buy(b.url, sale.id, 'five', 5)).toMatchObject(overLimit);
      const dear = await createSale(a.url, 100, { priceCents: 25_000_000 });
      expect(await buy(b.url, dear.id, 'hundred', 100)).toMatchObject(overLimit); // more cents than an integer holds
      expect((await buy(b.url, sale.id, 'two', 2)).status).toBeLessThan(300);
      expect((await buy(b.url, sale.id, 'late', 3)).problem).toBe('sold-out');
      const again = await buy(b.url, sale.id, 'four', 1);
      expect(again).toMatchObject({ status: 200, body: { orderId: first.body.orderId, quantity: 4 } });
      await expectSold(sale.id, 10);
      const order = { status: 200, body: { quantity: 4, priceCents: 500, amountCents: 2_000 } };
      expect(await call(`${a.url}/orders/${first.body.orderId}`)).toMatchObject(order);
      expect((await pay(b.url, first.body.orderId, 'too-little', 500)).body.reason).toBe('amount-mismatch');
      const more = await buy(a.url, sale.id, 'more', 2);
      expect((await cancel(b.url, more.body.orderId)).status).toBe(200);
      const next = () => buy(b.url, sale.id, 'next', 4);
      await eventually(next, ({ status }) => status < 300); // another process may have cached "sold out"
      expect((await pay(b.url, first.body.orderId, undefined, 2_000)).body.status).toBe('paid');
      await expectSold(sale.id, 10);
    });

    it('sells to two hundred customers of one to five units, while some cancel and units are added', async () => {
      const sale = await createSale(a.url, 200, { maxPerOrder: 5 });
      const wanted = (i: number) => 1 + ((i * 7) % 5);
      const answers = await Promise.all(
        users(200).map(async (user, i) => {
          // On a busy machine it may wait too long for the sale's row: nothing was changed then.
          if (i % 50 === 49)
            await eventually(
              () => post(`${either(i)}/sales/${sale.id}/restock`, { units: 25 }),
              ({ problem }) => problem !== 'busy',
            );
          const answer = await buy(either(i), sale.id, user, wanted(i));
          if (answer.status < 300 && i % 4 === 0) await cancel(either(i + 1), answer.body.orderId);
          return answer;
        }),
      );
      for (const [i, { status, body }] of answers.entries()) {
        if (status === 409) expect(Number(body.remaining ?? 0)).toBeLessThan(wanted(i));
        else
          expect({ isPlaced: status < 300, body }).toMatchObject({
            isPlaced: true,
            body: { quantity: wanted(i) },
          });
      }
      await expectSound(sale.id, answers);
      // No unit is stranded: customers of one unit get what is left.
      const { sold } = await now(sale.id);
      expect((await call(`${a.url}/sales/${sale.id}`)).body.stock).toBe(300);
      // Each process may remember for a moment that the sale was sold out.
      const first = users(Math.min(2, 300 - sold), 'first');
      for (const [i, user] of first.entries())
        await eventually(
          () => buy(either(i), sale.id, user),
          ({ status }) => status < 300,
        );
      const left = 300 - sold - first.length;
      const last = await Promise.all(users(left + 2, 'last').map((user, i) => buy(either(i), sale.id, user)));
      expect(last.filter(({ status }) => status < 300)).toHaveLength(left);
      await expectSold(sale.id, 300, last);
    });
  }

  function pausing(): void {
    it('takes no unit after a pause in the middle of a rush, in either process, until it goes on', async () => {
      const sale = await createSale(a.url, 100_000);
      const answers: { readonly sentMs: number; readonly answer: Answer }[] = [];
      let isOver = false;
      const lane = async (n: number) => {
        for (let i = 0; !isOver; i++) {
          const sentMs = performance.now();
          const answer = await attempt(either(n + i), sale.id, `lane-${n}-${i}`);
          answers.push({ sentMs, answer });
        }
      };
      const lanes = Array.from({ length: 16 }, (_, n) => lane(n));
      const sold = () => answers.filter(({ answer }) => answer.status === 201).length;
      await expect.poll(sold).toBeGreaterThanOrEqual(30);
      const pause = () => patch(`${a.url}/sales/${sale.id}`, { paused: true });
      const paused = await eventually(pause, ({ problem }) => problem !== 'busy'); // it waited too long for the sale's row
      expect(paused).toMatchObject({ status: 200, body: { paused: true } });
      const pausedMs = performance.now();
      const before = store === 'redis' ? await freeInRedis(sale.id) : await now(sale.id);
      const late = () => answers.filter(({ sentMs }) => sentMs > pausedMs).map(({ answer }) => answer);
      const refused = () => late().filter(({ problem }) => problem === 'sale-not-open');
      await expect.poll(() => refused().length).toBeGreaterThanOrEqual(32);
      isOver = true;
      await Promise.all(lanes);
      // Others waited too long for a lock or a turn.
      for (const { status } of late()) expect([409, 503]).toContain(status);
      for (const { body } of refused()) expect(body.reason).toBe('paused');
      if (store === 'postgres') expect(await now(sale.id)).toEqual(before);
      else if (safe) expect(await freeInRedis(sale.id)).toBeGreaterThanOrEqual(before as number);
      expect((await call(`${b.url}/sales/${sale.id}`)).body).toMatchObject({ paused: true });
      await patch(`${b.url}/sales/${sale.id}`, { paused: false, maxPerOrder: 2 });
      expect((await buy(a.url, sale.id, 'then', 2)).status).toBeLessThan(300);
      if (safe) await expectSound(sale.id);
    });
  }

  const freeInRedis = async (saleId: number) => (await redisNow(stores.redis, saleId)).remaining!;

  function overselling(): void {
    it.each([1, 5])('oversells under concurrent load, with orders of up to %i units', async (most) => {
      let worst = 0;
      for (let round = 0; round < 10 && worst === 0; round++) {
        const sale = await createSale(a.url, 50, { maxPerOrder: most });
        await Promise.all(users(200).map((user, i) => buy(either(i), sale.id, user, 1 + (i % most))));
        worst = (await now(sale.id)).active - 50;
      }
      expect(worst).toBeGreaterThan(0);
    });
  }
}
