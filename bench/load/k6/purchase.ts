/**
 * k6: purchases on one sale, each answer counted by outcome, and at the end the server asked what it has sold. Runs inside
 * k6, not in Node. By hand: `k6 run -e URL=http://127.0.0.1:3000 -e STOCK=100 bench/load/k6/purchase.ts`. Set with `-e`:
 *
 *   SCRIPT       rush: arrivals that grow to RATE over the first quarter of the time and then hold, whether earlier ones
 *                were answered or not (default). fixed: BUYERS attempts, as fast as VUS virtual users send them
 *   URL          where the service answers, without a path (http://127.0.0.1:3000)
 *   SALE_ID      the sale; without it, one with STOCK units is created
 *   STOCK        units of the sale that is created (100)
 *   ADMIN_TOKEN  the administrator's token, if the service has one
 *   VUS          virtual users, each with a connection (200)
 *   DURATION_S   no attempt begins after this (20)
 *   RATE         attempts/s of a rush (1,000)
 *   BUYERS       attempts of fixed, each by another customer (10,000)
 *   USERS        a JSON file with the customers of all attempts in order; without it they are named by number
 *   TIMEOUT_MS   an attempt without an answer after this is unknown (10,000)
 *   P99_MS       threshold for the 99th percentile of accepted attempts (1,000)
 *   RESULT       a file for thresholds and dropped attempts; the console then gets the history, for bench/load/k6.ts
 *
 * The history is written with `console.log`: 20 µs of CPU an attempt on top of 120. A metric with tags in `--out json`
 * costs 95 µs, and does not know which attempts were in flight.
 */
import { SharedArray } from 'k6/data';
import exec from 'k6/execution';
import http, { type RefinedParams } from 'k6/http';
import { Counter, Gauge, Trend } from 'k6/metrics';
import type { Options, Scenario } from 'k6/options';
import type { AttemptOutcome } from '../../kit/history.ts';
import { readAnswer } from '../answer.ts';
import { buyerName } from '../attempts.ts';

const url = (__ENV.URL || 'http://127.0.0.1:3000').replace(/\/+$/, '');
const knownSale = __ENV.SALE_ID ? number('SALE_ID', 0) : null;
const stock = number('STOCK', 100);
const timeoutMs = number('TIMEOUT_MS', 10_000);
const resultPath = __ENV.RESULT || null;
const virtualUsers = number('VUS', 200);
const durationMs = number('DURATION_S', 20) * 1_000;
const ratePerSecond = number('RATE', 1_000);

/** One list for all virtual users; null: customers are named by number. */
const users = __ENV.USERS
  ? new SharedArray<string>('users', () => JSON.parse(open(__ENV.USERS ?? '')) as string[])
  : null;
const listLength = users?.length ?? number('BUYERS', 10_000);

const counters: Readonly<Record<AttemptOutcome, Counter>> = {
  accepted: new Counter('stampede_sold'),
  replayed: new Counter('stampede_replayed'),
  'sold-out': new Counter('stampede_sold_out'),
  'not-open': new Counter('stampede_not_open'),
  busy: new Counter('stampede_busy'),
  unknown: new Counter('stampede_unknown'),
  unexpected: new Counter('stampede_unexpected'),
};
/** Of accepted attempts, from before the request until its answer was read, ms. */
const latency = new Trend('stampede_latency', true);
/** Units that the server says it sold beyond the stock. */
const oversold = new Counter('stampede_oversold');
/** Units that the server says it sold to this load. */
const serverSold = new Gauge('stampede_server_sold');

/** How long k6 waits for answers when no more attempts begin: longer than any attempt waits. */
const gracefulStop = `${timeoutMs + 1_000}ms`;

function scenario(): Scenario {
  if (__ENV.SCRIPT === 'fixed') {
    return {
      executor: 'shared-iterations',
      vus: Math.min(virtualUsers, listLength),
      iterations: listLength,
      maxDuration: `${Math.round(durationMs)}ms`,
      gracefulStop,
    };
  }
  const rampMs = Math.round(durationMs / 4);
  // k6 takes whole numbers only: over this many seconds, a rate with a fraction is one.
  const unitS = Number.isInteger(ratePerSecond) ? 1 : 1_000;
  const target = Math.round(ratePerSecond * unitS);
  return {
    executor: 'ramping-arrival-rate',
    startRate: 0,
    timeUnit: `${unitS}s`,
    // All of them at the start: one that is added under load makes k6 late.
    preAllocatedVUs: virtualUsers,
    stages: [
      { target, duration: `${rampMs}ms` },
      { target, duration: `${Math.round(durationMs) - rampMs}ms` },
    ],
    gracefulStop,
  };
}

export const options: Options = {
  scenarios: { purchases: scenario() },
  thresholds: {
    stampede_unexpected: ['count==0'],
    stampede_oversold: ['count==0'],
    stampede_latency: [`p(99)<${number('P99_MS', 1_000)}`],
    // A server can lie about `sold`: of a sale it created, the script knows the stock.
    ...(knownSale === null ? { stampede_sold: [`count<=${stock}`] } : {}),
  },
  noCookiesReset: true,
  setupTimeout: '20s',
  teardownTimeout: '20s',
  summaryTrendStats: ['min', 'med', 'p(90)', 'p(99)', 'max'],
};

const json = { 'content-type': 'application/json' };
const params: RefinedParams<'text'> = {
  headers: json,
  timeout: timeoutMs,
  redirects: 0,
  responseType: 'text',
};
const adminParams: RefinedParams<'text'> = {
  headers: __ENV.ADMIN_TOKEN ? { ...json, authorization: `Bearer ${__ENV.ADMIN_TOKEN}` } : json,
  timeout: 10_000,
  responseType: 'text',
};
// Sold-out and busy answers are no failures: k6's own `http_req_failed` then counts failures.
http.setResponseCallback(http.expectedStatuses(200, 201, 202, 409, 503));

interface Sale {
  readonly saleId: number;
  readonly soldBefore: number;
}

export function setup(): Sale {
  const body = JSON.stringify({ name: 'k6', stock, priceCents: 1_000 });
  const saleId = knownSale ?? readJson('POST /sales', http.post(`${url}/sales`, body, adminParams)).id;
  return { saleId, soldBefore: readSale(saleId).sold };
}

/** k6's clock, ms since the test began with a fraction; `Date.now()` knows whole ms only. */
let clock: typeof exec.instance | undefined;
const strangeKept = 3;
const strangeLength = 300;
let strange = 0;

/** Attempt `n` of the scenario; nothing when the list is at its end. */
export default function ({ saleId }: Sale): void {
  const n = exec.scenario.iterationInTest;
  if (users !== null && n >= users.length) return;
  const user = users === null ? buyerName(n + 1) : users[n];
  clock ??= exec.instance;
  const begunMs = clock.currentTestRunDuration;
  if (resultPath !== null) console.log(`${n} ${Math.round(begunMs * 1_000)}`);
  const response = http.post(`${url}/sales/${saleId}/orders`, `{"userId":"${user}"}`, params);
  const doneMs = clock.currentTestRunDuration;
  const { status, body } = response;
  if (status === 0 || body === null || isTransportError(response.error_code)) {
    counters.unknown.add(1); // no second line: nothing was answered
    return;
  }
  const { outcome, orderId } = readAnswer(status, body);
  counters[outcome].add(1);
  if (outcome === 'accepted') latency.add(doneMs - begunMs);
  if (resultPath === null) return;
  const line = `${n} ${Math.round(doneMs * 1_000)} ${status} ${outcome} ${orderId ?? '-'}`;
  const isQuoted = outcome === 'unexpected' && strange < strangeKept;
  if (isQuoted) strange += 1;
  console.log(isQuoted ? `${line} ${JSON.stringify(body.slice(0, strangeLength))}` : line);
}

/** k6 gives statuses of 400 and more codes from 1400 to 1599; all others mean that an answer did not come, or not whole. */
function isTransportError(code: number): boolean {
  return code !== 0 && (code < 1_400 || code > 1_599);
}

export function teardown({ saleId, soldBefore }: Sale): void {
  const sale = readSale(saleId);
  serverSold.add(sale.sold - soldBefore);
  oversold.add(Math.max(0, sale.sold - sale.stock));
  if (resultPath !== null) return;
  console.log(`sale ${saleId}: stock ${sale.stock}, sold ${sale.sold}, remaining ${sale.remaining}`);
}

interface Summary {
  readonly metrics: Readonly<
    Record<
      string,
      {
        readonly values: Readonly<Record<string, number>>;
        readonly thresholds?: Readonly<Record<string, { readonly ok: boolean }>>;
      }
    >
  >;
}

/** The only place where k6 shows a script its own counts. Without an answer from here it prints its usual summary. */
export function handleSummary({ metrics }: Summary): Record<string, string> | undefined {
  const value = (metric: string, field: string): number => metrics[metric]?.values[field] ?? 0;
  if (resultPath !== null) {
    const thresholds = Object.entries(metrics).flatMap(([metric, { thresholds = {} }]) =>
      Object.entries(thresholds).map(([rule, { ok }]) => ({ name: `${metric} ${rule}`, passed: ok })),
    );
    return { [resultPath]: JSON.stringify({ dropped: value('dropped_iterations', 'count'), thresholds }) };
  }
  const [told, sold] = [value('stampede_sold', 'count'), value('stampede_server_sold', 'value')];
  const unknown = value('stampede_unknown', 'count');
  if (sold !== told) {
    const perhaps = unknown > 0 ? ` (${unknown} attempts had an unknown end)` : '';
    console.warn(`${told} attempts were accepted, the server sold ${sold}${perhaps}`);
  }
  return undefined;
}

interface ServerSale {
  readonly id: number;
  readonly stock: number;
  readonly sold: number;
  readonly remaining: number;
}

function readSale(saleId: number): ServerSale {
  return readJson(`GET /sales/${saleId}`, http.get(`${url}/sales/${saleId}`, adminParams));
}

function readJson(what: string, answer: { status: number; body: string; error: string }): ServerSale {
  const { status, body, error } = answer;
  if (status !== 200 && status !== 201) throw new Error(`${what} answered ${status} ${error || body}`);
  return JSON.parse(body) as ServerSale;
}

/** A number from outside; a malformed one is refused. */
function number(name: string, otherwise: number): number {
  const text = __ENV[name];
  if (!text) return otherwise;
  if (!/^\d+(\.\d+)?$/.test(text)) throw new Error(`${name}=${text} is not a number`);
  return Number(text);
}
