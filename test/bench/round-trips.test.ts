import { Redis } from 'ioredis';
import pg from 'pg';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { measureRoundTrips } from '../../bench/suites/strategies/round-trips.ts';
import { openFarStores } from '../../lab/far-stores.ts';
import { opened } from '../support/opened.ts';
import { openTestStores } from '../support/stores.ts';
import { serve } from './fake-service.ts';

const stores = opened(openTestStores);
const link = opened(() =>
  openFarStores({ databaseUrl: stores.databaseUrl, redisUrl: stores.redisUrl, rttMs: 1 }),
);
/** A busy machine needs longer for an answer and the request for the count. */
const SLOW_MS = 20;
let redis: Redis;
let pool: pg.Pool;
beforeAll(() => {
  redis = new Redis(link.redisUrl);
  redis.on('error', () => {});
  pool = new pg.Pool({ connectionString: link.databaseUrl, max: 4 });
  pool.on('error', () => {});
});
afterAll(async () => {
  redis.disconnect();
  await pool.end();
});

/** A service whose attempts make known round trips. @returns its URL */
function serviceOf(attempt: (n: number) => Promise<void>, status = 201): Promise<string> {
  let attempts = 0;
  const body = status === 201 ? '{"orderId":"x"}' : '{"type":"/problems/sold-out"}';
  return serve(async (_body, response) => {
    await attempt(attempts++);
    response.writeHead(status).end(body);
  });
}

it('counts round trips that a customer waits for, and no background work', async () => {
  const url = await serviceOf(async (n) => {
    if (n % 5 === 0) {
      void redis.ping();
      void pool.query('SELECT 4');
    }
    await redis.get('a');
    await pool.query('SELECT 1');
    await pool.query('SELECT 2');
    await Promise.all([redis.get('a'), redis.get('b')]); // pipelined
    await pool.query('SELECT 3');
    void redis.set('settled', 1);
  });
  expect(await measureRoundTrips(link, url, 1, SLOW_MS)).toEqual({ redis: 2, postgres: 3 });
});

it('rejects attempts that are not accepted, and restores the link', async () => {
  const url = await serviceOf(async () => {}, 409);
  await expect(measureRoundTrips(link, url, 1)).rejects.toThrow(/not accepted.*409/);
});
