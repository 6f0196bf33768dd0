/** Runs one fault against one strategy: a service on stores of its own, an open loop of customers, and the audit. */
import { randomInt } from 'node:crypto';
import { mkdir, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type StoresToAudit, settle } from '../../audit/reader.ts';
import { auditSale } from '../../audit/sale.ts';
import { openLabServers } from '../../faults/servers.ts';
import { OUTAGE_MS, type Shop, type StrategyFault } from '../../faults/strategy-fault.ts';
import { createSale } from '../../kit/admin.ts';
import type { AttemptOutcome, HistoryRecord } from '../../kit/history.ts';
import { TcpProxy } from '../../kit/proxy.ts';
import { seededRandom } from '../../kit/random.ts';
import { noShedding, type Service, startService } from '../../kit/service.ts';
import { withPostgres } from '../../kit/stores.ts';
import type { Lanes } from '../../kit/suite.ts';
import { buyerName, poisson } from '../../load/attempts.ts';
import { runOpenLoop } from '../../load/open.ts';

export interface StrategyTrial {
  readonly word: 'kept' | 'oversold' | 'broken' | 'not audited';
  /** The longest time between two accepted attempts while customers came steadily. */
  readonly silentMs: number;
  /** Attempts without an answer that says what happened, and how many of them turned out to be orders. */
  readonly unknown: number;
  readonly unknownPlaced: number;
  /** 5xx other than 503. */
  readonly errors: number;
  readonly findings: readonly string[];
  readonly picture: Lanes;
}

export interface StrategyOrder {
  readonly strategy: string;
  /** The control meets the whole crowd at once. The others shed load, as they do in a real sale. */
  readonly unsafe: boolean;
  /** Further variables of the service. */
  readonly env: Readonly<Record<string, string>>;
  readonly fault: StrategyFault;
  readonly seed: number;
  readonly folder: string;
  readonly clock: string | null;
  readonly signal: AbortSignal;
}

const RATE = 60;
const STEADY_MS = 8_000;
const STRIKE_MS = 2_000;
/** The crowd at the end wants more than is left, so that a strategy that oversells shows it. */
const CROWD_MS = 1_000;
const CROWD = 500;
const LEFT = 100;
const CONNECTIONS = 520;
const TIMEOUT_MS = 6_000;
const BUCKET_MS = 100;
/** A picture shows a longer pause only. */
const GAP_MS = 200;

export async function runStrategyTrial(order: StrategyOrder): Promise<StrategyTrial> {
  const { strategy, folder, clock, signal } = order;
  await mkdir(folder, { recursive: true, mode: 0o755 });
  try {
    await using redis = await openLabServers('redis', {
      folder: join(folder, 'redis'),
      clock,
      durable: true,
    });
    await using postgres = await openLabServers('postgres', {
      folder: join(folder, 'postgres'),
      clock,
      durable: true,
    });
    const [redisNode, postgresNode] = [redis.nodes[0]!, postgres.nodes[0]!];
    await using toRedis = await TcpProxy.open({ port: redisNode.port });
    await using toPostgres = await TcpProxy.open({ port: postgresNode.port });
    const stores = {
      redisUrl: redis.urls([redisNode.port]).redisUrl!,
      databaseUrl: postgres.urls([postgresNode.port]).databaseUrl!,
    };
    const port = await quietPort();
    const start = (): Promise<Service> => {
      const through = { ...redis.urls([toRedis.port]), ...postgres.urls([toPostgres.port]) } as typeof stores;
      const env = {
        ...(order.unsafe ? noShedding : { PAYMENT_WINDOW_S: noShedding.PAYMENT_WINDOW_S }),
        PORT: String(port),
        ...order.env,
      };
      return startService({ strategy, lock: null, ...through, env }, { signal });
    };
    let service = await start();
    const shop: Shop = {
      service: {
        async kill() {
          process.kill(service.pid!, 'SIGKILL');
          await service.stop();
        },
        async start() {
          service = await start();
        },
        signal: (name) => void process.kill(service.pid!, name),
      },
      redis: { ...redisNode, setClock: redis.setClock },
      postgres: postgresNode,
      links: { redis: toRedis, postgres: toPostgres },
    };
    try {
      return await sellThrough(order, shop, service.url, stores, () => service.stop());
    } finally {
      await service.stop();
    }
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** A free port that no client gets for a connection of its own: the service returns to it after seconds. */
async function quietPort(): Promise<number> {
  for (;;) {
    const port = randomInt(20_000, 30_000);
    const server = createServer();
    const isFree = await new Promise<boolean>((resolve) => {
      server.once('error', () => resolve(false));
      server.listen(port, '127.0.0.1', () => resolve(true));
    });
    if (!isFree) continue;
    await new Promise((resolve) => server.close(resolve));
    return port;
  }
}

async function sellThrough(
  { fault, seed, signal }: StrategyOrder,
  shop: Shop,
  url: string,
  stores: StoresToAudit,
  stop: () => Promise<unknown>,
): Promise<StrategyTrial> {
  const steady = poisson({ ratePerSecond: RATE, durationMs: STEADY_MS, seed });
  const crowd = Array.from({ length: CROWD }, (_, n) => (STEADY_MS + CROWD_MS) * 1_000 + n);
  const schedule = Float64Array.from([...steady, ...crowd]);
  const users = Array.from(schedule, (_, n) => buyerName(n));
  const saleId = await createSale(url, steady.length + LEFT);
  const load = {
    url,
    saleId,
    users,
    schedule,
    connections: CONNECTIONS,
    requestTimeoutMs: TIMEOUT_MS,
    signal,
  };
  let begin = (): void => {};
  const begun = new Promise<void>((resolve) => {
    begin = resolve;
  });
  const bounds = { maxOutstanding: 2 * CONNECTIONS, mayWait: true, onBegin: begin };
  const selling = runOpenLoop({ ...load, ...bounds });
  await begun;
  const strikeMs = STRIKE_MS + 500 * seededRandom(seed)();
  await sleep(strikeMs, undefined, { signal });
  await fault.strike(shop);
  await sleep(OUTAGE_MS, undefined, { signal });
  await fault.heal(shop);
  const { history } = await selling;
  return judgeSale(history, saleId, [strikeMs, strikeMs + OUTAGE_MS], stores, stop);
}

/** @param stop the service, once nothing is in flight between the stores */
async function judgeSale(
  history: readonly HistoryRecord[],
  saleId: number,
  band: Lanes['band'],
  stores: StoresToAudit,
  stop: () => Promise<unknown>,
): Promise<StrategyTrial> {
  const settled = await settle(stores, [saleId]);
  await stop();
  const report = await auditSale({ ...stores, saleId, history, settled });
  const orders = await withPostgres(stores.databaseUrl, async (client) => {
    const { rows } = await client.query<{ user: string }>(
      'SELECT user_id AS user FROM orders WHERE sale_id = $1',
      [saleId],
    );
    return new Set(rows.map(({ user }) => user));
  });
  const unknown = history.filter(({ result }) => result === 'info');
  const oversold = report.findings.some((finding) => finding.includes('oversold'));
  return {
    word:
      report.verdict === 'pass'
        ? 'kept'
        : report.verdict === 'unknown'
          ? 'not audited'
          : oversold
            ? 'oversold'
            : 'broken',
    silentMs: longestSilence(history),
    unknown: unknown.length,
    unknownPlaced: unknown.filter(({ userId }) => orders.has(userId)).length,
    errors: history.filter(({ status }) => status !== null && status >= 500 && status !== 503).length,
    findings: report.findings,
    picture: pictureOf(history, band),
  };
}

/** Between two accepted attempts of the steady customers. */
function longestSilence(history: readonly HistoryRecord[]): number {
  const accepted = history
    .filter(({ outcome, completedUs }) => outcome === 'accepted' && completedUs! < STEADY_MS * 1_000)
    .map(({ completedUs }) => completedUs! / 1_000)
    .sort((a, b) => a - b);
  return Math.round(Math.max(0, ...[...accepted, STEADY_MS].map((ms, n) => ms - (accepted[n - 1] ?? 0))));
}

const LANES: readonly (readonly [name: string, outcomes: readonly AttemptOutcome[]])[] = [
  ['accepted', ['accepted', 'replayed']],
  ['sold out', ['sold-out']],
  ['busy', ['busy']],
  ['unknown', ['unknown', 'unexpected']],
];

/** When attempts were answered how; one without an answer stands at its begin. */
function pictureOf(history: readonly HistoryRecord[], band: Lanes['band']): Lanes {
  const at = ({ completedUs, invokedUs }: HistoryRecord): number => (completedUs ?? invokedUs) / 1_000;
  return {
    endMs: Math.round(Math.max(STEADY_MS, ...history.map(at))),
    band: [Math.round(band[0]), Math.round(band[1])],
    exclusive: false,
    lanes: LANES.map(([name, outcomes]) => {
      const found = history
        .filter(({ outcome }) => outcomes.includes(outcome))
        .map((one) => Math.floor(at(one) / BUCKET_MS));
      const spans: [number, number][] = [];
      for (const bucket of [...new Set(found)].sort((a, b) => a - b)) {
        const last = spans.at(-1);
        if (last && bucket * BUCKET_MS - last[1] <= GAP_MS) last[1] = (bucket + 1) * BUCKET_MS;
        else spans.push([bucket * BUCKET_MS, (bucket + 1) * BUCKET_MS]);
      }
      return { name, spans, marks: [] };
    }),
  };
}
