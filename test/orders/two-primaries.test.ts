/**
 * Two processes use one Redis each, with one Postgres: as after a promotion that one of them has not noticed, for as long as the
 * test needs it. Postgres is the fence between the copies of a sale (src/store/redis/epochs.ts).
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { TcpProxy } from '../../lab/proxy.ts';
import { limits } from '../../src/config/limits.ts';
import { createOutboxRelay, type OutboxRelay } from '../../src/store/outbox-relay.ts';
import { orderTable } from '../../src/store/postgres/orders.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { saleTable } from '../../src/store/postgres/sales.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { redisEpochs } from '../../src/store/redis/epochs.ts';
import { createSaleMirror } from '../../src/store/redis/sale-mirror.ts';
import { testHealth } from '../support/background.ts';
import { attempt, buy, cancel, createSale, eventually, users } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { OwnRedis } from '../support/servers.ts';
import { startService, type TestService } from '../support/service.ts';
import { envOf, openStoresWithRedis } from '../support/stores.ts';

const stores = opened(openStoresWithRedis);
const other = opened(() => OwnRedis.open());

describe.each(['lua', 'global-lock', 'segmented-lock'])('%s', (STRATEGY) => {
  let a: TestService;
  let b: TestService;
  beforeAll(async () => {
    const env = { ...envOf(stores), STRATEGY, SEGMENTS: '4' };
    [a, b] = await Promise.all([startService(env), startService({ ...env, REDIS_URL: other.url })]);
  });
  afterAll(async () => {
    await Promise.all([a?.stop(), b?.stop()]);
  });

  it('finds every order, whichever copy it was reserved in', async () => {
    const sale = await createSale(a.url, 2);
    expect((await buy(a.url, sale.id, 'ann')).status).toBeLessThan(300);
    expect((await buy(b.url, sale.id, 'ann')).status).toBe(200); // the sale is in both now

    expect((await buy(a.url, sale.id, 'bob')).status).toBeLessThan(300);

    const refused = await buy(b.url, sale.id, 'cat');
    expect([refused.status, refused.problem]).toEqual([409, 'sold-out']);
    expect((await buy(b.url, sale.id, 'bob')).status).toBe(200);
  });

  it('sells a unit that becomes free, whichever copy the cancellation reached', async () => {
    const sale = await createSale(a.url, 1);
    const { body } = await buy(a.url, sale.id, 'ann');
    expect((await buy(b.url, sale.id, 'ann')).status).toBe(200);
    expect((await buy(b.url, sale.id, 'cat')).status).toBe(409);

    expect((await cancel(a.url, body.orderId)).status).toBe(200);
    const ask = (url: string) => () => attempt(url, sale.id, 'cat');
    await eventually(ask(b.url), ({ status }) => status === 201);
    // The other copy may be stale: its process leaves it at the next pass of the reaper.
    await eventually(ask(a.url), ({ status }) => status === 200);
  });
});

it.each(['lua', 'global-lock', 'segmented-lock'])(
  '%s, CONFIRM=accepted: after one address has led there and back, no answer names an order that is lost',
  async (STRATEGY) => {
    await using link = await TcpProxy.to(stores.redisUrl);
    const REDIS_URL = link.through(stores.redisUrl);
    const env = { ...envOf(stores), REDIS_URL, STRATEGY, SEGMENTS: '4', CONFIRM: 'accepted' };
    await using service = await startService(env);
    const sale = await createSale(service.url, 40);
    const orders = async () => {
      const { rows } = await stores.sql.query('SELECT id FROM orders WHERE sale_id = $1', [sale.id]);
      return rows.map(({ id }) => String(id));
    };
    const rush = (name: string) =>
      Promise.all(users(34, name).map((user) => buy(service.url, sale.id, user)));
    expect((await buy(service.url, sale.id, 'ann')).status).toBe(202);
    link.lead(other.port);
    await rush('there');
    await eventually(orders, ({ length }) => length === 35);
    link.lead(stores.redisPort); // its copy is as it was: 39 units are free
    const answers = await rush('back');
    const named = answers.filter(({ status }) => status < 300).map(({ body }) => body.orderId);
    expect(named).toHaveLength(5);
    await eventually(orders, ({ length }) => length === 40);
    expect(await orders()).toEqual(expect.arrayContaining(named));
  },
);

describe('the relay of each', () => {
  const postgres = opened(() => openPostgres(stores.databaseUrl, () => {}));
  const redis = [() => stores.redisUrl, () => other.url].map((url) =>
    opened(() => openRedis(url(), () => {})),
  );

  it('leaves changes of a sale that was loaded in the other to that one, however old, and publishes those behind them', async () => {
    const sales = saleTable(postgres);
    const [here, there] = redis.map((one) => {
      const mirror = createSaleMirror(one, redisEpochs(one, postgres), orderTable(postgres), 0);
      return createOutboxRelay(postgres, mirror, testHealth().loop('mirror-outbox'));
    }) as [OutboxRelay, OutboxRelay];
    const make = () => sales.create({ name: 'a', stock: 1, priceCents: 1, startsAt: null, endsAt: null });
    const [ofHere, ofThere] = [await make(), await make()];
    await here.mirror.load(ofHere);
    await there.mirror.load(ofThere);
    for (let n = 0; n < limits.outboxBatch; n++) await sales.restock(ofHere.id, 1, true);
    await stores.sql.query(`UPDATE mirror_outbox SET created_at = now() - $1 * interval '1 millisecond'`, [
      2 * limits.outboxKeepMs,
    ]);
    await sales.restock(ofThere.id, 1, true);
    await there.publish();
    await there.publish();
    expect(await there.mirror.snapshot(ofThere.id)).toMatchObject({ remaining: 2 });
    await here.publish();
    expect(await here.mirror.snapshot(ofHere.id)).toMatchObject({ remaining: 1 + limits.outboxBatch });
  });
});
