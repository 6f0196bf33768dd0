import { expect, it } from 'vitest';
import { buy, cancel, createSale } from '../support/client.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores, published } from '../support/stores.ts';
import { strategyContract } from './strategy-suite.ts';

strategyContract('unsafe');

it('unsafe sells again to a customer whose order was cancelled', async () => {
  await using stores = await openTestStores();
  await using service = await startService({ ...envOf(stores), STRATEGY: 'unsafe' });
  const { id } = await createSale(service.url, 2);
  const first = await buy(service.url, id, 'ann');
  expect((await cancel(service.url, first.body.orderId)).status).toBe(200);
  await published(stores);
  const second = await buy(service.url, id, 'ann');
  expect([second.status, second.body.replayed]).toEqual([201, false]);
});
