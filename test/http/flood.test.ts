/**
 * Floods of requests that buy nothing, on a running service: customers beside them are served, and nothing is lost. The flood is a
 * closed loop of 64 connections in another thread, bounded in time and number.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import autocannon from 'autocannon';
import { beforeAll, expect, it } from 'vitest';
import { type Answer, buy, createSale } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { spawnService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';
import { bySize } from '../support/tier.ts';

const FLOOD = { connections: 64, duration: 4, maxOverallRequests: 200_000, workers: 1 };
const PER_SECOND = 20;
const POLITE = PER_SECOND * (FLOOD.duration - 2);

const stores = opened(openTestStores);
const service = opened(() => spawnService(envOf(stores)));
let saleId: number;
let orderId: unknown;
let runs = 0;

beforeAll(async () => {
  for (let n = 0; n < 100; n++) saleId = (await createSale(service.url, 10_000)).id;
  orderId = (await buy(service.url, saleId, 'ann')).body.orderId;
});

/** Buys at a steady rate, whether earlier answers came or not; a customer who is answered busy repeats. @returns the last answers */
async function buyPolitely(name: string): Promise<Answer[]> {
  const originMs = performance.now();
  const purchase = async (n: number) => {
    await sleep(originMs + (n * 1_000) / PER_SECOND - performance.now());
    return buy(service.url, saleId, `${name}-${n}`);
  };
  return Promise.all(Array.from({ length: POLITE }, (_, n) => purchase(n)));
}

const PATHS: [string, () => string][] = [
  ['/metrics', () => '/metrics'],
  ['the list of sales', () => '/sales'],
  ['an order', () => `/orders/${orderId}`],
  ['/healthz', () => '/healthz'],
  ['/readyz', () => '/readyz'],
  ['a sale', () => `/sales/${saleId}`],
  ["a customer's order", () => `/sales/${saleId}/orders?userId=ann`],
];

it.each(PATHS.slice(0, bySize({ core: 2, full: 3, nightly: PATHS.length })))(
  'a flood on %s: customers beside it are served, and nothing is lost',
  async (_name, path) => {
    const user = `polite-${++runs}`;
    const flood = autocannon({ ...FLOOD, url: `${service.url}${path()}` });
    await sleep(1_000);
    const polite = await buyPolitely(user);
    const { requests } = await flood;
    expect(requests.total).toBeGreaterThan(64); // a flood, although /metrics answers only once a second
    expect(polite.filter(({ status }) => status >= 300)).toEqual([]);
    const { rowCount } = await stores.sql.query('SELECT FROM orders WHERE user_id LIKE $1', [`${user}-%`]);
    expect(rowCount).toBe(POLITE);
  },
);
