/**
 * The lottery, with 10,000 customers on a running service: the order of arrival does not decide the outcome, and no customer is served
 * before their turn. Turns are given by the waiting room on a real Redis, in the seconds before a start that has passed when the
 * customers buy. Everything depends on a fixed seed. With another one, each statistic would be beyond its bound once in a million.
 */

import { Client } from 'undici';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { customerId } from '../../src/access/identity.ts';
import { createTickets } from '../../src/access/ticket.ts';
import { createWaitingRoom } from '../../src/access/waiting-room.ts';
import type { Sale } from '../../src/domain/sale.ts';
import type { RedisStore } from '../../src/store/redis/connection.ts';
import { call } from '../support/client.ts';
import { ISSUER, type Issuer, openIssuer } from '../support/issuer.ts';
import { startService, type TestService } from '../support/service.ts';
import { openTestStores, type TestStores } from '../support/stores.ts';

const SEED = 'b51d3a4e-6f0c-4c52-9d6f-0c1f3a7be2d4';
const KEY = Buffer.alloc(32, 'k');
const CUSTOMERS = 10_000;
const UNITS = 1_000;
const SPREAD_S = 240;
/** A standard normal value is further from 0 once in a million. */
const FAR = 4.9;
/** A chi-squared value with 19 degrees of freedom is higher once in a million. */
const [BINS, UNEVEN] = [20, 65];

let stores: TestStores;
let issuer: Issuer;
let service: TestService;

beforeAll(async () => {
  [stores, issuer] = await Promise.all([openTestStores(), openIssuer()]);
  service = await startService({
    DATABASE_URL: stores.databaseUrl,
    REDIS_URL: stores.redisUrl,
    ...issuer.env,
    TICKET_SECRETS: KEY.toString('base64'),
    ADDRESS_RATE: '0',
    ADMISSION_MS: '60000', // a slow machine answers late, not busy
    ADMIN_TOKEN: 'test:0123456789abcdef',
  });
});
afterAll(async () => {
  await service?.kill();
  await issuer?.[Symbol.asyncDispose]();
  await stores?.[Symbol.asyncDispose]();
});

async function sell(startMs: number): Promise<Sale> {
  const startsAt = new Date(startMs).toISOString();
  const { body } = await call(`${service.url}/sales`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', authorization: 'Bearer 0123456789abcdef' },
    body: JSON.stringify({ name: 'rush', stock: UNITS, priceCents: 500, startsAt, spreadS: SPREAD_S }),
  });
  const sale = body as unknown as Sale;
  await stores.sql.query('UPDATE sales SET lottery_seed = $2 WHERE id = $1', [sale.id, SEED]);
  return sale;
}

const waitingRoom = () =>
  createWaitingRoom({ redis: stores.redis } as unknown as RedisStore, () => 1_000, 600_000);

interface Arrival {
  /** How many came before. */
  readonly rank: number;
  readonly customer: string;
  readonly turnMs: number;
  readonly ticket: string;
}

/** One customer after the other takes a ticket, in the minute before the start. */
async function arrive(sale: Sale): Promise<Arrival[]> {
  const tickets = createTickets([KEY]);
  const room = waitingRoom();
  const sinceMs = Date.parse(sale.startsAt!) - 60_000;
  return Promise.all(
    Array.from({ length: CUSTOMERS }, async (_, rank) => {
      const customer = `customer-${rank}`;
      const turnMs = await room.turn(sale, SEED, customer, sinceMs + 5 * rank);
      const times = { notBeforeMs: turnMs, expiresMs: turnMs + 600_000 };
      const ticket = tickets.issue({ saleId: sale.id, customer, ...times });
      return { rank, customer, turnMs, ticket };
    }),
  );
}

/** Buys with each ticket, in the order given. @returns each answer's status */
async function attempt(sale: Sale, arrivals: readonly Arrival[]): Promise<number[]> {
  const client = new Client(service.url, { pipelining: 50 });
  const answers = arrivals.map(async ({ ticket }) => {
    const headers = { authorization: `Bearer ${ticket}` };
    const path = `/sales/${sale.id}/orders`;
    const { statusCode, body } = await client.request({ method: 'POST', path, headers, idempotent: true });
    await body.dump();
    return statusCode;
  });
  const statuses = await Promise.all(answers);
  await client.close();
  return statuses;
}

/** Spearman's rank correlation of a list of ranks with its order, as a standard normal value. */
function spearman(values: readonly number[]): number {
  const n = values.length;
  const rankOf = new Map([...values].sort((a, b) => a - b).map((value, rank) => [value, rank]));
  const squares = values.reduce((sum, value, at) => sum + (rankOf.get(value)! - at) ** 2, 0);
  return (1 - (6 * squares) / (n * (n * n - 1))) * Math.sqrt(n - 1);
}

it('serves 10,000 customers in an order independent of their arrival', async () => {
  const startMs = Date.now() - 1_000 * (SPREAD_S + 5);
  const sale = await sell(startMs);
  const arrivals = await arrive(sale);
  const byTurn = arrivals.toSorted((a, b) => a.turnMs - b.turnMs);
  const statuses = await attempt(sale, byTurn);
  const served = byTurn.filter((_, at) => statuses[at] === 201);
  expect(served).toEqual(byTurn.slice(0, UNITS)); // each at its turn, and no other customer
  expect(statuses.filter((status) => status === 409)).toHaveLength(CUSTOMERS - UNITS);
  const owners = await stores.sql.query('SELECT user_id FROM orders WHERE sale_id = $1', [sale.id]);
  expect(new Set(owners.rows.map(({ user_id }) => user_id))).toEqual(
    new Set(served.map((one) => one.customer)),
  );

  const z = spearman(byTurn.map(({ rank }) => rank));
  const ofServed = spearman(served.map(({ rank }) => rank));
  // The mean place of those served among all who came: of n places drawn without replacement.
  const mean = served.reduce((sum, { rank }) => sum + rank, 0) / UNITS;
  const deviation = Math.sqrt(((CUSTOMERS + 1) * (CUSTOMERS - UNITS)) / (12 * UNITS));
  const place = (mean - (CUSTOMERS - 1) / 2) / deviation;
  for (const value of [z, ofServed, place]) expect(Math.abs(value)).toBeLessThan(FAR);

  const bins = Array<number>(BINS).fill(0);
  for (const { turnMs } of arrivals) bins[Math.floor(((turnMs - startMs) / (SPREAD_S * 1_000)) * BINS)]!++;
  const each = CUSTOMERS / BINS;
  const unevenness = bins.reduce((sum, count) => sum + (count - each) ** 2 / each, 0);
  expect(unevenness).toBeLessThan(UNEVEN);
});

it('refuses purchases before their turn while units are free', async () => {
  const nowMs = Date.now();
  const sale = await sell(nowMs - 10_000);
  const arrivals = await arrive(sale);
  const early = arrivals.filter(({ turnMs }) => turnMs > nowMs + 60_000);
  const due = arrivals.filter(({ turnMs }) => turnMs <= nowMs);
  expect(new Set(await attempt(sale, early))).toEqual(new Set([409]));
  expect((await call(`${service.url}/sales/${sale.id}`)).body.sold).toBe(0);
  expect(new Set(await attempt(sale, due))).toEqual(new Set([201]));
});

it('issues the turns of the waiting room over HTTP', async () => {
  const sale = await sell(Date.now() + 3_600_000);
  const subjects = Array.from({ length: 30 }, (_, n) => `subject-${n}`);
  const asked = await Promise.all(
    subjects.map(async (sub) => {
      const headers = { authorization: `Bearer ${await issuer.token(sub)}` };
      return call(`${service.url}/sales/${sale.id}/tickets`, { method: 'POST', headers });
    }),
  );
  await stores.redis.del(`stampede:{sale:${sale.id}}:turns`); // forgets them: they are drawn again
  const drawn = await Promise.all(
    subjects.map((sub) => waitingRoom().turn(sale, SEED, customerId(ISSUER, sub), Date.now())),
  );
  expect(asked.map(({ body }) => Date.parse(body.notBefore as string))).toEqual(drawn);
});
