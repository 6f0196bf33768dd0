/**
 * k6 script: makes purchases on one sale, counts answers by outcome, and finally reads how much the server sold. Runs inside
 * k6, not in Node. By hand: `k6 run -e URL=http://127.0.0.1:3000 -e STOCK=100 bench/load/k6/purchase.ts`. Set with `-e`:
 *
 *   SCRIPT       rush: arrivals that grow to RATE over the first quarter of the time and then hold, whether earlier ones
 *                were answered or not (default). fixed: the attempts of USERS, as fast as VUS virtual users send them
 *   URL          where the service answers, without a path (http://127.0.0.1:3000)
 *   SALE_ID      the sale; without it, one with STOCK units (100) is created
 *   ADMIN_TOKEN  the administrator's token, if the service has one
 *   VUS          virtual users, each with a connection (200)
 *   DURATION_S   no attempt begins after this (20)
 *   RATE         attempts/s of a rush (1,000)
 *   USERS        a JSON file with the customers of all attempts in order; without it they are named by number
 *   QUANTITY     units of an order, such as 1-4; each customer always asks for the same number (1)
 *   TIMEOUT_MS   an attempt without an answer after this is unknown (10,000)
 *   RESULT       a file for thresholds and dropped attempts; the console then gets the history, for bench/load/k6.ts
 *
 * The history is written with `console.log`: 20 µs of CPU an attempt on top of 120. A metric with tags in `--out json`
 * costs 95 µs, and does not show which attempts were in flight.
 */
import { SharedArray } from 'k6/data';
import exec from 'k6/execution';
import http, { type RefinedParams } from 'k6/http';
import { Counter, Gauge, Trend } from 'k6/metrics';
import type { Options, Scenario } from 'k6/options';
import { answerLine, readAnswer } from '../answer.ts';
import { buyerName } from '../attempts.ts';
import { purchaseBody, unitsOf } from '../purchase.ts';

const url = (__ENV.URL || 'http://127.0.0.1:3000').replace(/\/+$/, '');
const knownSale = __ENV.SALE_ID ? number('SALE_ID', 0) : null;
const stock = number('STOCK', 100);
const [least = 1, most = least] = (__ENV.QUANTITY || '1').split('-').map(Number);
const quantities = { least, most };
const timeoutMs = number('TIMEOUT_MS', 10_000);
const resultPath = __ENV.RESULT || null;
const durationMs = Math.round(number('DURATION_S', 20) * 1_000);
const readUsers = (): string[] => (__ENV.USERS ? (JSON.parse(open(__ENV.USERS)) as string[]) : []);
/** One list for all virtual users; empty: customers are named by number. */
const users = new SharedArray<string>('users', readUsers);

const accepted = new Counter('stampede_accepted');
/** Units of accepted attempts. */
const units = new Counter('stampede_units');
const refused = new Counter('stampede_refused');
const unknown = new Counter('stampede_unknown');
const unexpected = new Counter('stampede_unexpected');
/** Latency of accepted attempts, from before the request until its answer was read, ms. */
const latency = new Trend('stampede_latency', true);
/** Units sold beyond the stock, and to this load, as the server says. */
const oversold = new Counter('stampede_oversold');
const serverSold = new Gauge('stampede_server_sold');

/** How long k6 waits for the last answers: longer than an attempt's timeout. */
const gracefulStop = `${timeoutMs + 1_000}ms`;
const virtualUsers = number('VUS', 200);
const vus = Math.min(virtualUsers, users.length);
const iterations = users.length;
const maxDuration = `${durationMs}ms`;
const fixed: Scenario = { executor: 'shared-iterations', vus, iterations, maxDuration, gracefulStop };
const rampMs = Math.round(durationMs / 4);
const target = Math.round(number('RATE', 1_000) * 1_000);
const rush: Scenario = {
  executor: 'ramping-arrival-rate',
  startRate: 0,
  timeUnit: '1000s', // k6 takes whole numbers only, and a rate may have a fraction
  preAllocatedVUs: virtualUsers, // all of them at the start: adding some under load makes k6 late
  stages: [rampMs, durationMs - rampMs].map((ms) => ({ target, duration: `${ms}ms` })),
  gracefulStop,
};

export const options: Options = {
  scenarios: { purchases: __ENV.SCRIPT === 'fixed' ? fixed : rush },
  thresholds: {
    stampede_unexpected: ['count==0'],
    stampede_oversold: ['count==0'],
    stampede_latency: ['p(99)<1000'],
    // A server can misreport `sold`, but the script knows the stock of its own sale.
    ...(knownSale === null ? { stampede_units: [`count<=${stock}`] } : {}),
  },
  noCookiesReset: true,
  setupTimeout: '20s',
  teardownTimeout: '20s',
  summaryTrendStats: ['min', 'med', 'p(90)', 'p(99)', 'max'],
};

const headers = { 'content-type': 'application/json' };
const params: RefinedParams<'text'> = { headers, timeout: timeoutMs, redirects: 0, responseType: 'text' };
const token = __ENV.ADMIN_TOKEN ? { authorization: `Bearer ${__ENV.ADMIN_TOKEN}` } : {};
const adminParams = { headers: { ...headers, ...token }, timeout: 10_000, responseType: 'text' } as const;
// Sold-out and busy answers are expected: k6's `http_req_failed` then counts only failures.
http.setResponseCallback(http.expectedStatuses(200, 201, 202, 409, 503));

interface Sale {
  readonly id: number;
  readonly stock: number;
  readonly sold: number;
}

export function setup(): Sale {
  if (knownSale !== null) return readSale(knownSale);
  const body = JSON.stringify({ name: 'k6', stock, priceCents: 1_000, maxPerOrder: most });
  return readSale(saleIn('POST /sales', http.post(`${url}/sales`, body, adminParams)).id);
}

/** k6's clock: fractional ms since the test began; `Date.now()` has whole ms only. */
let clock: typeof exec.instance | undefined;

/** Makes attempt `n` of the scenario; nothing after the list's end. */
export default function ({ id }: Sale): void {
  const n = exec.scenario.iterationInTest;
  const user = users.length === 0 ? buyerName(n + 1) : users[n];
  if (user === undefined) return;
  clock ??= exec.instance;
  const begunMs = clock.currentTestRunDuration;
  if (resultPath !== null) console.log(`[${n},${Math.round(begunMs * 1_000)}]`);
  const response = http.post(`${url}/sales/${id}/orders`, purchaseBody(user, quantities), params);
  const doneMs = clock.currentTestRunDuration;
  const { status, body, error_code: code } = response;
  // k6 maps statuses from 400 on to codes 1400 to 1599; other codes: the answer is missing or incomplete.
  if (status === 0 || body === null || (code !== 0 && (code < 1_400 || code > 1_599))) {
    unknown.add(1);
    return;
  }
  const { outcome } = readAnswer(status, body);
  if (outcome === 'accepted') {
    latency.add(doneMs - begunMs);
    units.add(unitsOf(user, quantities));
  }
  const counters: Readonly<Record<string, Counter>> = { accepted, unknown, unexpected };
  (counters[outcome] ?? refused).add(1);
  if (resultPath !== null) console.log(answerLine(n, Math.round(doneMs * 1_000), status, body));
}

export function teardown(before: Sale): void {
  const { sold } = readSale(before.id);
  serverSold.add(sold - before.sold);
  oversold.add(Math.max(0, sold - before.stock));
}

interface Metric {
  readonly values: Readonly<Record<string, number>>;
  readonly thresholds?: Readonly<Record<string, { readonly ok: boolean }>>;
}

/** The only place where k6 shows a script its own counts. Without a return value, k6 prints its usual summary. */
export function handleSummary({ metrics }: { metrics: Record<string, Metric> }) {
  const value = (metric: string, field = 'count'): number => metrics[metric]?.values[field] ?? 0;
  if (resultPath !== null) {
    const thresholds = Object.entries(metrics).flatMap(([metric, { thresholds: rules = {} }]) =>
      Object.entries(rules).map(([rule, { ok }]) => ({ name: `${metric} ${rule}`, passed: ok })),
    );
    return { [resultPath]: JSON.stringify({ dropped: value('dropped_iterations'), thresholds }) };
  }
  const [seen, sold] = [value('stampede_units'), value('stampede_server_sold', 'value')];
  const perhaps = `${value('stampede_unknown')} attempts have an unknown outcome`;
  if (sold !== seen) console.warn(`${seen} units were accepted, the server sold ${sold}; ${perhaps}`);
  return undefined;
}

const readSale = (id: number): Sale =>
  saleIn(`GET /sales/${id}`, http.get(`${url}/sales/${id}`, adminParams));

function saleIn(what: string, answer: { status: number; body: string; error: string }): Sale {
  const { status, body, error } = answer;
  if (status !== 200 && status !== 201) throw new Error(`${what} answered ${status} ${error || body}`);
  return JSON.parse(body) as Sale;
}

/** A number from `__ENV`; a malformed one is refused. */
function number(name: string, otherwise: number): number {
  const text = __ENV[name] || String(otherwise);
  if (!/^\d+(\.\d+)?$/.test(text)) throw new Error(`${name}=${text} is not a number`);
  return Number(text);
}
