/**
 * The waiting room. On a running service, no customer is served before their turn. The waiting room gives the turns on a real store, at
 * simulated times in the minute before a start that has passed when the customers buy. The draw itself: draw.test.ts.
 */
import { Client } from 'undici';
import { beforeAll, describe, expect, it } from 'vitest';
import { customerId } from '../../src/access/identity.ts';
import { createTickets, serviceKeys } from '../../src/access/ticket.ts';
import { turnsIn } from '../../src/access/turns.ts';
import { createWaitingRoom } from '../../src/access/waiting-room.ts';
import { limits } from '../../src/config/limits.ts';
import type { Sale } from '../../src/domain/sale.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { call, eventually, inGroups, post } from '../support/client.ts';
import { AUDIENCE, ISSUER, openIssuer } from '../support/issuer.ts';
import { opened } from '../support/opened.ts';
import { OwnRedis } from '../support/servers.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const SEED = 'b51d3a4e-6f0c-4c52-9d6f-0c1f3a7be2d4';
const KEY = Buffer.alloc(32, 'k');
const CUSTOMERS = 100;
/** One of ten gets one. */
const UNITS = CUSTOMERS / 10;
const SPREAD_S = 240;
const VALID_MS = 600_000;
interface Arrival {
  /** Number of earlier arrivals. */
  readonly rank: number;
  readonly customer: string;
  readonly turnMs: number;
  readonly ticket: string;
}

/** More expired turns than one statement deletes, an expired room, and a turn whose ticket is still valid. */
const EXPIRED = `
  WITH room AS (INSERT INTO waiting_rooms (sale_id, expires_ms) VALUES (-1, 1))
  INSERT INTO turns SELECT -1, 'old-' || n, 0, CASE n WHEN 0 THEN 1e15 ELSE n END FROM generate_series(0, $1::int) n`;

describe('the waiting room', () => {
  const stores = opened(openTestStores);
  const issuer = opened(openIssuer);
  const postgres = opened(() => openPostgres(stores.databaseUrl, () => {}));
  beforeAll(() => stores.sql.query(EXPIRED, [2 * limits.retention.batch + 1]));
  const env = () => ({
    ...envOf(stores),
    ...issuer.env,
    TICKET_SECRETS: KEY.toString('base64'),
    ADDRESS_RATE: '0',
    ADMISSION_MS: '60000', // a slow machine answers late instead of `busy`
    ADMIN_TOKEN: 'test:0123456789abcdef',
  });
  const service = opened(() => startService(env()));

  async function sell(startMs: number, spreadS = SPREAD_S, stock = UNITS): Promise<Sale> {
    const startsAt = new Date(startMs).toISOString();
    const asked = { name: 'rush', stock, priceCents: 500, startsAt, spreadS };
    const { body } = await post(`${service.url}/sales`, asked, '0123456789abcdef');
    const sale = body as unknown as Sale;
    await stores.sql.query('UPDATE sales SET lottery_seed = $2 WHERE id = $1', [sale.id, SEED]);
    return sale;
  }

  /** Of another process each. */
  const waitingRoom = (perSecond = 1_000, validMs = VALID_MS) =>
    createWaitingRoom(
      turnsIn(postgres),
      () => perSecond,
      () => validMs,
    );

  /** Customers take tickets in the minute before the start, some of them at the same time. */
  async function arrive(sale: Sale, count = CUSTOMERS): Promise<Arrival[]> {
    const tickets = createTickets(serviceKeys([KEY], AUDIENCE));
    const room = waitingRoom();
    const sinceMs = Date.parse(sale.startsAt!) - 60_000;
    const one = async (rank: number) => {
      const customer = `customer-${rank}`;
      const turnMs = await room.turn(sale, SEED, customer, sinceMs + 5 * rank);
      const times = { notBeforeMs: turnMs, expiresMs: turnMs + VALID_MS };
      return { rank, customer, turnMs, ticket: tickets.issue({ saleId: sale.id, customer, ...times }) };
    };
    return inGroups(
      Array.from({ length: count }, (_, rank) => rank),
      one,
    );
  }

  /** Buys with each ticket, in the order given; the next twenty come when each of these has a final answer. @returns the statuses */
  async function attempt(sale: Sale, arrivals: readonly Arrival[]): Promise<number[]> {
    const client = new Client(service.url, { pipelining: 20 });
    const request = { method: 'POST', path: `/sales/${sale.id}/orders`, idempotent: true } as const;
    const statuses = await inGroups(arrivals, ({ ticket }) => {
      const ask = async () => {
        const headers = { authorization: `Bearer ${ticket}` };
        const { statusCode, body } = await client.request({ ...request, headers });
        await body.dump();
        return statusCode;
      };
      return eventually(ask, (status) => status !== 503 && status !== 429);
    });
    await client.close();
    return statuses;
  }

  it('serves customers by their turns, and no others', async () => {
    const startMs = Date.now() - 1_000 * (SPREAD_S + 5);
    const sale = await sell(startMs);
    const arrivals = await arrive(sale);
    const byTurn = arrivals.toSorted((a, b) => a.turnMs - b.turnMs);
    const statuses = await attempt(sale, byTurn);
    const served = byTurn.filter((_, at) => statuses[at]! < 300);
    expect(served).toEqual(byTurn.slice(0, UNITS)); // the first by turn, and no others
    expect(statuses.filter((status) => status === 409)).toHaveLength(CUSTOMERS - UNITS);
    const owners = await stores.sql.query('SELECT user_id FROM orders WHERE sale_id = $1', [sale.id]);
    expect(new Set(owners.rows.map(({ user_id }) => user_id))).toEqual(
      new Set(served.map((one) => one.customer)),
    );
  });

  const requestTicket = async (sale: Sale, sub: string, url = service.url) => {
    const headers = { authorization: `Bearer ${await issuer.token(sub)}` };
    return call(`${url}/sales/${sale.id}/tickets`, { method: 'POST', headers });
  };

  it('issues over HTTP the turns that the room gives', async () => {
    const sale = await sell(Date.now() + 3_600_000);
    const keep = { take: async ({ drawnMs }: { drawnMs: number | null }) => drawnMs! };
    const drawn = createWaitingRoom(
      keep,
      () => 1,
      () => VALID_MS,
    );
    for (const sub of ['ann', 'ben', 'cat']) {
      const { body } = await eventually(
        () => requestTicket(sale, sub),
        ({ status }) => status === 201,
      );
      const drawnMs = await drawn.turn(sale, SEED, customerId(ISSUER, sub), Date.now());
      expect(Date.parse(body.notBefore as string)).toBe(drawnMs);
    }
  });

  it('gives a customer one turn until its ticket expires, also for requests at the same time', async () => {
    const nowMs = Date.now();
    const sale = { ...(await sell(nowMs - 60_000)), spreadS: 0 };
    const turn = (n: number, atMs = nowMs) => waitingRoom(10).turn(sale, SEED, `late-${n}`, atMs);
    const late = Array.from({ length: 10 }, (_, n) => n);
    const turns = await Promise.all(late.flatMap((n) => [turn(n), turn(n), turn(n), turn(n)]));
    expect(turns.toSorted((a, b) => a - b)).toEqual(late.flatMap((n) => Array(4).fill(nowMs + 100 * n)));
    for (const n of late) expect(new Set(turns.slice(4 * n, 4 * n + 4)).size).toBe(1);
    const expiresMs = turns[0]! + VALID_MS;
    expect([await turn(0, expiresMs - 1), await turn(0, expiresMs)]).toEqual([turns[0], expiresMs]);
    // The sale's payment window became shorter, and with it the validity of its tickets.
    const shorter = (atMs: number) => waitingRoom(10, 60_000).turn(sale, SEED, 'late-1', atMs);
    const endMs = turns[4]! + 60_000;
    expect(await shorter(endMs - 1)).toBe(turns[4]);
    expect(await shorter(endMs)).toBeGreaterThanOrEqual(endMs);
  });

  it('gives whoever comes during the lottery a turn in what is left of it, never an earlier one than to a participant', async () => {
    const startMs = Date.now() - 1_000;
    const sale = { ...(await sell(startMs)), spreadS: 60 };
    const hoarders = Array.from({ length: 40 }, (_, n) => `hoarder-${n}`);
    /** Turns of customers who come `atMs` after the start, in an empty waiting room; in ms after the start. */
    const turnsAt = async (atMs: number) => {
      await stores.sql.query('DELETE FROM turns WHERE sale_id = $1', [sale.id]);
      const turns: number[] = [];
      for (const name of hoarders) turns.push(await waitingRoom().turn(sale, SEED, name, startMs + atMs));
      return turns.map((turnMs) => turnMs - startMs);
    };
    const drawn = await turnsAt(-1);
    for (const fromMs of [0, 30_000, 59_999])
      for (const [n, turnMs] of (await turnsAt(fromMs)).entries()) {
        expect(turnMs).toBeGreaterThanOrEqual(Math.max(fromMs, drawn[n]!));
        expect(turnMs).toBeLessThan(60_000);
      }
  });

  it('gives another turn when the start was moved', async () => {
    const nowMs = Date.now();
    const sale = await sell(nowMs + 365 * 86_400_000);
    const turn = (startMs: number, spreadS: number) =>
      waitingRoom().turn({ ...sale, startsAt: new Date(startMs).toISOString(), spreadS }, SEED, 'ann', nowMs);
    expect(await turn(Date.parse(sale.startsAt!), SPREAD_S)).toBeGreaterThan(nowMs + 364 * 86_400_000);
    for (const startMs of [nowMs + 60_000, nowMs + 240_000]) {
      const turnMs = await turn(startMs, 60);
      expect(turnMs).toBeGreaterThanOrEqual(startMs);
      expect(turnMs).toBeLessThan(startMs + 60_000);
      expect(await turn(startMs, 60)).toBe(turnMs);
    }
    expect(await turn(nowMs - 1_000, 0)).toBe(nowMs);
  });

  it('gives late customers the turns behind those of the lottery', async () => {
    const startMs = Date.now() - 1_000;
    /** Turns of three late customers, at ten a second, after a lottery of 10 s. @param early number of its participants */
    const late = async (early: number) => {
      const sale = { ...(await sell(startMs)), spreadS: 10 };
      const turn = (customer: string, atMs: number) => waitingRoom(10).turn(sale, SEED, customer, atMs);
      for (
        let n = 0;
        n < early;
        n++ // a second request is not a second customer
      )
        for (let times = 0; times < 2; times++) await turn(`early-${n}`, startMs - 1);
      const turns: number[] = [];
      for (const customer of ['ann', 'ben', 'cat']) turns.push(await turn(customer, startMs + 10_000));
      return turns.map((turnMs) => turnMs - startMs);
    };
    for (const few of [0, 95]) expect(await late(few)).toEqual([10_000, 10_100, 10_200]);
    expect(await late(110)).toEqual([11_000, 11_100, 11_200]);
  });

  it('answers at most 20 requests of a customer in a minute', async () => {
    const sale = await sell(Date.now() + 3_600_000);
    const answers = await Promise.all(Array.from({ length: 25 }, () => requestTicket(sale, 'insistent')));
    expect(answers.filter(({ status }) => status === 429)).toHaveLength(5);
    expect(answers.filter(({ status }) => status === 201 || status === 503)).toHaveLength(20);
  });

  it('gives the customers of a process their turns in the order in which they came, by one commit', async () => {
    const nowMs = Date.now();
    const sales = await Promise.all([sell(nowMs - 60_000), sell(nowMs - 60_000)]);
    const room = waitingRoom(10);
    const come = (count: number) =>
      Array.from({ length: count }, (_, n) =>
        sales.map((sale) => room.turn({ ...sale, spreadS: 0 }, SEED, `in-order-${n}`, nowMs)),
      ).flat();
    const expected = Array.from({ length: 100 }, (_, n) => nowMs + 100 * n);
    for (const count of [20, 100])
      expect(await Promise.all(come(count))).toEqual(expected.slice(0, count).flatMap((ms) => [ms, ms]));
    const commits = 'SELECT count(DISTINCT xmin::text)::int AS n FROM turns WHERE sale_id = ANY($1)';
    const { rows } = await stores.sql.query(commits, [sales.map(({ id }) => id)]);
    // One for the first 20 of both sales; of the others, more than a batch shares with other sales, one for each sale.
    expect(rows).toEqual([{ n: 3 }]);
  });

  it('gives turns of other sales while the room of one is locked', async () => {
    const nowMs = Date.now();
    const [held, free] = await Promise.all([sell(nowMs - 60_000), sell(nowMs - 60_000)]);
    const room = waitingRoom(10);
    const turn = (sale: Sale, customer: string) => room.turn({ ...sale, spreadS: 0 }, SEED, customer, nowMs);
    await Promise.all([held, free].map((sale) => turn(sale, 'ann')));
    const blocker = await stores.sql.connect();
    await blocker.query('BEGIN');
    await blocker.query('SELECT FROM waiting_rooms WHERE sale_id = $1 FOR UPDATE', [held.id]);
    const waiting = turn(held, 'ben');
    expect(await turn(free, 'ben')).toBe(nowMs + 100);
    await blocker.query('ROLLBACK');
    blocker.release();
    // With a slow machine the wait for the lock may have ended; the next request gets the turn.
    await waiting.catch(() => {});
    expect(await turn(held, 'ben')).toBe(nowMs + 100);
  });

  it('deletes the turns whose tickets have expired', async () => {
    const count = `SELECT (SELECT count(*)::int FROM turns WHERE user_id LIKE 'old-%') AS turns,
      (SELECT count(*)::int FROM waiting_rooms WHERE sale_id < 0) AS rooms`;
    const rest = await eventually(
      async () => (await stores.sql.query(count)).rows[0],
      ({ turns }) => turns === 1,
    );
    expect(rest).toEqual({ turns: 1, rooms: 0 });
  });

  it('gives turns while Redis is down', async () => {
    await using redis = await OwnRedis.open();
    await using other = await startService({ ...env(), REDIS_URL: redis.url, STRATEGY: 'group-commit' });
    const sale = await sell(Date.now() - 60_000);
    const first = await requestTicket(sale, 'ann', other.url);
    await redis.kill();
    const repeat = await requestTicket(sale, 'ann', other.url);
    expect([first.status, repeat.status]).toEqual([201, 201]);
    expect(repeat.body.notBefore).toBe(first.body.notBefore);
  });

  it('gives no turn while Postgres cannot: 503', async () => {
    const sale = await sell(Date.now() + 3_600_000);
    const blocker = await stores.sql.connect();
    await blocker.query('BEGIN; LOCK TABLE waiting_rooms IN ACCESS EXCLUSIVE MODE');
    const { status, problem, headers } = await requestTicket(sale, 'ann').finally(async () => {
      await blocker.query('ROLLBACK');
      blocker.release();
    });
    expect({ status, problem }).toEqual({ status: 503, problem: 'busy' });
    expect(Number(headers.get('retry-after'))).toBeGreaterThan(0);
    await expect.poll(() => requestTicket(sale, 'ann')).toMatchObject({ status: 201 });
  });
});
