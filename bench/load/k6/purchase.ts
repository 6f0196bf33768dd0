/**
 * What both k6 scripts do with an attempt: one POST, its answer counted by outcome, and at the end the server asked what
 * it has sold. Runs inside k6, not in Node. Everything is set from outside with `-e NAME=value`:
 *
 *   URL          where the service answers, without a path (http://127.0.0.1:3000)
 *   SALE_ID      the sale that is attempted; without it, one with STOCK units is created
 *   STOCK        units of the sale that is created (100)
 *   ADMIN_TOKEN  the administrator's token, if the service has one
 *   VUS          virtual users, each with a connection of its own (200)
 *   DURATION_S   no attempt begins after this (20)
 *   RATE         rush: attempts/s (1,000)
 *   BUYERS       fixed: attempts, each by another customer (10,000)
 *   USERS        a JSON file with the customers of all attempts in order; without it they are named by number
 *   TIMEOUT_MS   an attempt without an answer after this is unknown (10,000)
 *   P99_MS       99 of 100 customers who got a unit must have been told within this (1,000)
 *   RESULT       a file for thresholds and dropped attempts; the console then gets the history, for bench/load/k6.ts
 *
 * The history is written with `console.log` into `--console-output`: a line when an attempt begins (whatever ends k6, it
 * is known who was under way) and one when it was answered. That costs k6 some 20 µs of CPU an attempt on top of 120, and
 * about 50 bytes. The other way that k6 offers, a metric with tags in `--out json`, costs 95 µs and 1,900 bytes, since
 * every metric of every request is written and each attempt is a time series of its own, and knows nothing of who was
 * under way.
 */
import { SharedArray } from 'k6/data';
import exec from 'k6/execution';
import http, { type RefinedParams } from 'k6/http';
import { Counter, Gauge, Trend } from 'k6/metrics';
import type { AttemptOutcome } from '../../history.ts';
import { readAnswer } from '../answer.ts';
import { buyerName } from '../attempts.ts';

const url = (__ENV.URL || 'http://127.0.0.1:3000').replace(/\/+$/, '');
const knownSale = __ENV.SALE_ID ? number('SALE_ID', 0) : null;
const stock = number('STOCK', 100);
const timeoutMs = number('TIMEOUT_MS', 10_000);
const p99Ms = number('P99_MS', 1_000);
const resultPath = __ENV.RESULT || null;
const recorded = resultPath !== null;

export const virtualUsers = number('VUS', 200);
export const durationMs = number('DURATION_S', 20) * 1_000;
export const ratePerSecond = number('RATE', 1_000);
const buyers = number('BUYERS', 10_000);

/** One list for all virtual users; null: customers are named by number. */
const users = __ENV.USERS
  ? new SharedArray<string>('users', () => JSON.parse(open(__ENV.USERS ?? '')) as string[])
  : null;
/** Attempts of the script that knows their number. */
export const listLength = users?.length ?? buyers;

const counters: Readonly<Record<AttemptOutcome, Counter>> = {
  accepted: new Counter('stampede_sold'),
  replayed: new Counter('stampede_replayed'),
  'sold-out': new Counter('stampede_sold_out'),
  'not-open': new Counter('stampede_not_open'),
  busy: new Counter('stampede_busy'),
  unknown: new Counter('stampede_unknown'),
  unexpected: new Counter('stampede_unexpected'),
};
/** Of attempts that got a unit, from before the request until its answer was read, ms. */
const latency = new Trend('stampede_latency', true);
/** Units that the server says it sold beyond the stock. */
const oversold = new Counter('stampede_oversold');
/** Units that the server says it sold to this load. */
const serverSold = new Gauge('stampede_server_sold');

/** What is the same in both scripts. */
export const commonOptions = {
  thresholds: {
    stampede_unexpected: ['count==0'],
    stampede_oversold: ['count==0'],
    stampede_latency: [`p(99)<${p99Ms}`],
    // A server can lie about `sold`: to a sale of its own, the script knows the stock before it begins.
    ...(knownSale === null ? { stampede_sold: [`count<=${stock}`] } : {}),
  },
  noCookiesReset: true,
  setupTimeout: '20s',
  teardownTimeout: '20s',
  summaryTrendStats: ['min', 'med', 'p(90)', 'p(99)', 'max'],
};
/** How long k6 waits for answers when no more attempts begin: longer than any attempt waits. */
export const gracefulStop = `${timeoutMs + 1_000}ms`;

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
// What sold-out and busy answer with is no failure: k6's own `http_req_failed` then counts what is one.
http.setResponseCallback(http.expectedStatuses(200, 201, 202, 409, 503));

/** The sale that is attempted, as it was before. */
export interface Sale {
  readonly saleId: number;
  /** Units that others had already. */
  readonly soldBefore: number;
}

export function setup(): Sale {
  const saleId = knownSale ?? createSale();
  return { saleId, soldBefore: readSale(saleId).sold };
}

/** k6's clock, ms since the test began with a fraction; `Date.now()` knows whole ms only. */
let clock: typeof exec.instance | undefined;
const strangeKept = 3;
const strangeLength = 300;
let strange = 0;

/** Attempt `n` of this virtual user's scenario; nothing when the list is at its end. */
export function attempt({ saleId }: Sale): void {
  const n = exec.scenario.iterationInTest;
  if (users !== null && n >= users.length) return;
  const user = users === null ? buyerName(n + 1) : users[n];
  clock ??= exec.instance;
  const begunMs = clock.currentTestRunDuration;
  if (recorded) console.log(`${n} ${Math.round(begunMs * 1_000)}`);
  const response = http.post(`${url}/sales/${saleId}/orders`, `{"userId":"${user}"}`, params);
  const doneMs = clock.currentTestRunDuration;
  const { status, body } = response;
  if (status === 0 || body === null || isTransportError(response.error_code)) {
    // No second line: nothing was answered.
    counters.unknown.add(1);
    return;
  }
  const { outcome, orderId } = readAnswer(status, body);
  counters[outcome].add(1);
  if (outcome === 'accepted') latency.add(doneMs - begunMs);
  if (!recorded) return;
  const line = `${n} ${Math.round(doneMs * 1_000)} ${status} ${outcome} ${orderId ?? '-'}`;
  const quoted = outcome === 'unexpected' && strange < strangeKept;
  if (quoted) strange += 1;
  console.log(quoted ? `${line} ${JSON.stringify(body.slice(0, strangeLength))}` : line);
}

/** k6 gives statuses of 400 and more codes from 1400 to 1599; all others mean that an answer did not come, or not whole. */
function isTransportError(code: number): boolean {
  return code !== 0 && (code < 1_400 || code > 1_599);
}

export function teardown({ saleId, soldBefore }: Sale): void {
  const sale = readSale(saleId);
  serverSold.add(sale.sold - soldBefore);
  oversold.add(Math.max(0, sale.sold - sale.stock));
  if (recorded) return;
  console.log(
    `sale ${saleId}: the server has stock ${sale.stock}, sold ${sale.sold}, remaining ${sale.remaining}`,
  );
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
  const value = (metric: string, field: string): number | undefined => metrics[metric]?.values[field];
  if (resultPath !== null) {
    const thresholds = Object.entries(metrics).flatMap(([metric, { thresholds = {} }]) =>
      Object.entries(thresholds).map(([rule, { ok }]) => ({ name: `${metric} ${rule}`, passed: ok })),
    );
    return {
      [resultPath]: JSON.stringify({ dropped: value('dropped_iterations', 'count') ?? 0, thresholds }),
    };
  }
  const told = value('stampede_sold', 'count') ?? 0;
  const sold = value('stampede_server_sold', 'value');
  const unknown = value('stampede_unknown', 'count') ?? 0;
  if (sold !== undefined && sold !== told) {
    const perhaps = unknown > 0 ? ` (${unknown} attempts had an unknown end)` : '';
    console.warn(`${told} customers were told that they have a unit, the server sold ${sold}${perhaps}`);
  }
  return undefined;
}

interface ServerSale {
  readonly id: number;
  readonly stock: number;
  readonly sold: number;
  readonly remaining: number;
}

function createSale(): number {
  const body = JSON.stringify({ name: 'k6', stock, priceCents: 1_000 });
  return readJson('POST /sales', http.post(`${url}/sales`, body, adminParams)).id;
}

function readSale(saleId: number): ServerSale {
  return readJson(`GET /sales/${saleId}`, http.get(`${url}/sales/${saleId}`, adminParams));
}

function readJson(
  what: string,
  { status, body, error }: { status: number; body: string; error: string },
): ServerSale {
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
