/** Promotion of a standby of Postgres in the middle of a sale. With a synchronous one, every promise is kept. */
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { users } from '../support/client.ts';
import { openPostgresPair } from '../support/postgres-pair.ts';
import { openTestStores, type TestStores } from '../support/stores.ts';
import { assertInvariants, World } from '../support/world.ts';

const STOCK = 120;

it.each(['lua', 'group-commit', 'for-update', 'skip-locked', 'global-lock'])(
  '%s keeps every promise when the synchronous standby is promoted',
  async (strategy) => {
    await using pair = await openPostgresPair(true);
    const shared = await openTestStores();
    const stores: TestStores = {
      ...shared,
      databaseUrl: pair.url,
      get sql() {
        return pair.sql();
      },
    };
    await using world = await World.open({ strategy, services: 2, stores });
    const sale = await world.openSale(STOCK);
    await sale.rush(users(20, 'before'));
    const rush = sale.rush(users(60, 'during'), 3_000);
    await sleep(500);
    await pair.failOver();
    await rush;
    const statuses = new Set(sale.ledger.operations.map(({ status }) => status));
    statuses.delete(null); // not answered
    expect([...statuses].filter((status) => status! >= 500 && status !== 503)).toEqual([]);
    await assertInvariants(sale);
  },
);
