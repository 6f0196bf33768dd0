/** What most tests of a running service need: stores for each test, services that end with it, and reads of the stores. */
import { afterEach, beforeEach, expect } from 'vitest';
import { redisNow } from '../../lab/audit/reader.ts';
import { TcpProxy } from '../../lab/proxy.ts';
import { type ServiceProcess, spawnService, startService, type TestService } from './service.ts';
import { envOf, openTestStores, type TestStores } from './stores.ts';

export interface Scene<S extends TestStores> {
  readonly stores: S;
  /** Starts a service on the stores. */
  start(env?: Readonly<Record<string, string>>): Promise<TestService>;
  /** The same as a separate process. */
  spawn(env?: Readonly<Record<string, string>>): Promise<ServiceProcess>;
  /** Ends a part after the test, in reverse order. */
  kept<T extends AsyncDisposable>(part: T): T;
  proxyTo(url: string): Promise<TcpProxy>;
  sold(saleId: number): Promise<number>;
  ordersOf(saleId: number, userId: string): Promise<string[]>;
  /** Waits until a sale has `count` reservations. */
  untilReserved(saleId: number, count: number): Promise<unknown>;
}

/** Called by a test file. */
export function openScene(): Scene<TestStores>;
export function openScene<S extends TestStores>(open: () => Promise<S>): Scene<S>;
export function openScene(open: () => Promise<TestStores> = openTestStores): Scene<TestStores> {
  let stores: TestStores;
  const parts: AsyncDisposable[] = [];
  const kept = <T extends AsyncDisposable>(part: T): T => {
    parts.push(part);
    return part;
  };
  beforeEach(async () => {
    stores = kept(await open());
  });
  afterEach(async () => {
    for (const part of parts.splice(0).reverse()) await part[Symbol.asyncDispose]();
  });
  return {
    get stores() {
      return stores;
    },
    kept,
    start: async (env = {}) => kept(await startService({ ...envOf(stores), ...env })),
    spawn: async (env = {}) => kept(await spawnService({ ...envOf(stores), ...env })),
    proxyTo: async (url) => kept(await TcpProxy.to(url)),
    async sold(saleId) {
      const { rows } = await stores.sql.query('SELECT sold FROM sales WHERE id = $1', [saleId]);
      return rows[0].sold;
    },
    async ordersOf(saleId, userId) {
      const find = 'SELECT id FROM orders WHERE sale_id = $1 AND user_id = $2';
      return (await stores.sql.query<{ id: string }>(find, [saleId, userId])).rows.map(({ id }) => id);
    },
    untilReserved: (saleId, count) =>
      expect.poll(() => redisNow(stores.redis, saleId)).toMatchObject({ unsettled: count }),
  };
}
