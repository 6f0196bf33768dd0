/** Measures one cell at each number of connections, on one server: a warm-up, then the steps. */
import { resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { auditCounts, settleAll } from '../../../lab/audit/counts.ts';
import { post, problemIn } from '../../../lab/kit/http.ts';
import { startProgram } from '../../../lab/kit/processes.ts';
import { percent } from '../../../lab/kit/text.ts';
import { startRedisCluster } from '../../../lab/servers/cluster.ts';
import { openPostgresPair } from '../../../lab/servers/postgres-pair.ts';
import { noShedding, type Service, startService, youngGeneration } from '../../../lab/service.ts';
import { migrate } from '../../../src/store/postgres/migrate.ts';
import { strategies } from '../../../src/strategies/registry.ts';
import { type CpuUsage, residentBytes, startCpu } from '../../kit/cpu.ts';
import { MissingServersError } from '../../kit/environment.ts';
import { pin } from '../../kit/pin.ts';
import type { Bare, Trial, TrialBase } from '../../kit/suite.ts';
import { merged, type RateLoad, type RateNumbers } from '../../load/rate.ts';
import { measureReference } from '../../reference/pgbench.ts';
import { insertSales } from '../../reference/sales.ts';
import type { Listening } from './bare-server.ts';
import type { LimitCell } from './cells.ts';
import type { LimitOptions } from './options.ts';
import type { Place } from './place.ts';
import { createSales, openPostgresCells } from './postgres-cells.ts';
import { profileFlags, type Share, sharesIn } from './profile.ts';
import { readStored, type Stored, storedSince } from './storage.ts';
import { openStreams } from './streams.ts';
import { ticketEnv, ticketFor, writeTickets } from './tickets.ts';
import { readTrace, type Step, type TraceRow, traceFlags } from './trace.ts';

export interface LimitResult extends TrialBase {
  /** The load generator. */
  readonly how: string;
  /** Answers of the expected kind, or orders, a second. */
  readonly perSecond: number;
  /** Answers of another kind, such as busy, and requests without an answer. */
  readonly others: number;
  /** Answers of all kinds. */
  readonly answers: number;
  readonly latencyMs: { readonly p50: number; readonly p99: number } | null;
  /** CPU of the server for an answer, µs; null: not known. */
  readonly serviceCpuUs: number | null;
  /** The same for all Redis servers, and for Postgres. */
  readonly redisCpuUs: number | null;
  readonly postgresCpuUs: number | null;
  /** Share of one processor that the server, or all its processes, used. */
  readonly utilization: number | null;
  /** Resident memory of the server during the step. */
  readonly memory: readonly (readonly [s: number, mebibytes: number])[];
  /** Bytes in the stores for each order of the whole trial; null: there were no orders. */
  readonly stored: Stored | null;
  /** Null: there is nothing to audit. */
  readonly passed: boolean | null;
  /** Shares of the service's time by owner; empty: no profile was taken. */
  readonly shares: readonly Share[];
  /** Batches and calls of the service in this step; empty: they were not traced. */
  readonly trace: readonly TraceRow[];
}

export interface Measuring extends Omit<LimitOptions, 'generator'>, Place {
  readonly onStep: (step: string) => void;
}

/** A service with 1,000 sales or 1,000,000 buyers is slow to start selling. */
const readyMs = 180_000;
const requestMs = 20_000;
/** Interval between two attempts of the bench itself. */
const sampleEveryMs = 200;
/** A closed loop does not slow down when answered busy: beyond this share it measures how fast a service refuses. */
const othersWithin = 0.1;
/** Readings of the memory in a step. */
const readings = 50;
const mebibyte = 1_048_576;

type Results = Bare<LimitResult>[];
const nothing = {
  ...{ others: 0, answers: 0, latencyMs: null, serviceCpuUs: null, passed: null },
  ...{ redisCpuUs: null, postgresCpuUs: null, utilization: null, stored: null },
  ...{ memory: [], shares: [], trace: [], invalid: [], findings: [] },
};

export async function measureCell(trial: Trial<LimitCell>, measuring: Measuring): Promise<Results> {
  const { cell } = trial;
  const name = `${trial.number}_limits`;
  if (cell.kind === 'service') return measureService(cell, name, measuring);
  const { layout, stores, scratch: folder, signal, connections, durationMs } = measuring;
  if (cell.kind === 'bare') {
    await using bare = startProgram<never, Listening>('bare-server', [youngGeneration]);
    const { port } = await bare.receive(
      (message): message is Listening => message.kind === 'listening',
      measuring,
    );
    await pin(bare.pid, layout.server);
    const server = { url: `http://127.0.0.1:${port}`, pid: bare.pid, died: bare.died };
    return (await attack([server], { redisUrls: [], more: [] }, cell, measuring)).result;
  }
  measuring.onStep('pgbench');
  await using own = await stores.fresh(name);
  const load = { warmupMs: Math.min(2_000, measuring.warmupMs), durationMs, layout, folder, signal };
  const reference = await measureReference({ strategy: 'for-update', databaseUrl: own.databaseUrl, ...load });
  if (reference === null) throw new MissingServersError('pgbench is not installed');
  // pgbench has as many connections as the service's pool: it belongs to the first step.
  return [{ ...nothing, ...reference, point: { connections: connections[0]! } }];
}

/** Of several processes the first is traced. */
const nodeOptionsOf = ({ profile, trace }: Measuring, profileTo: string, isFirst: boolean): string[] => [
  ...(profile ? profileFlags(profileTo) : []),
  ...(trace && isFirst ? traceFlags : []),
];

async function measureService(cell: LimitCell, name: string, measuring: Measuring): Promise<Results> {
  const { folder, scratch, profile, trace, signal, onStep, stores } = measuring;
  const { strategy, confirm, sales, buyers, stock, masters, processes } = cell;
  onStep('starting');
  await using empty = await stores.fresh(name);
  await using cluster = masters > 1 ? await startRedisCluster(`${scratch}/${name}`, masters, 0) : null;
  await using pair =
    cell.standby && (await openPostgresPair({ synchronous: cell.standby === 'synchronous' }));
  await using more = await openPostgresCells(cell.cells, `${scratch}/${name}`);
  const single = empty.redisUrl;
  const own = { databaseUrl: pair?.currentUrl() ?? empty.databaseUrl, redisUrl: cluster?.url ?? single };
  const redisUrls = cluster?.members.map(({ port }) => `redis://127.0.0.1:${port}`) ?? [single];
  await migrate(own.databaseUrl);
  if (cell.cells === null) await insertSales(own.databaseUrl, { sales, buyers, stock: stock + buyers });
  const profileTo = resolve(folder, `profile-${name}`); // the service runs in another folder
  const traceTo = resolve(folder, `trace-${name}.json`);
  const tickets = cell.tickets && ticketEnv;
  const env = { ...noShedding, CONFIRM: confirm, ...tickets, ...(trace && { TRACE_FILE: traceTo }) };
  const settings = { strategy, lock: null, ...own, env: { ...env, ...more.env } };
  const services: Service[] = [];
  await using _running = {
    [Symbol.asyncDispose]: async () => {
      await Promise.all(services.map((service) => service.stop()));
    },
  };
  const start = (nodeOptions: string[]) => startService(settings, { signal, nodeOptions });
  for (let n = 0; n < processes; n++) {
    services.push(await start(nodeOptionsOf(measuring, profileTo, n === 0)));
    await untilSelling(services[n]!, cell, measuring, n === 0);
  }
  const ended = new AbortController();
  const samples = cell.answer === 'sold-out' ? sample(services[0]!.url, cell, ended.signal) : [];
  const servers = services.map((service) => ({ ...service, pid: service.pid! }));
  using _watching = cell.streams && (await openStreams(services[0]!.url, cell.streams));
  const before = await readStored(own.databaseUrl, redisUrls);
  const loaded = { redisUrls, more: more.pids };
  const { result, steps, promised } = await attack(servers, loaded, cell, measuring).finally(() =>
    ended.abort(),
  );
  const strange = [...(await samples)].filter((answer) => answer !== '409 sold-out');
  onStep('settling and audit');
  const audited = { ...own, more: more.urls };
  await settleAll(audited);
  const after = await readStored(own.databaseUrl, redisUrls);
  const stored = promised > 0 && more.urls.length === 0 ? storedSince(before, after, promised) : null;
  const stopped = await Promise.all(services.map((service) => service.stop()));
  const inRedis = strategies.get(strategy)?.description.store === 'redis';
  const findings = [
    ...(await auditCounts({ ...audited, inRedis, accepted: promised + processes })), // with those of untilSelling
    ...strange.map((answer) => `an attempt on a sold-out sale was answered ${answer}`),
    ...(stopped.every(Boolean) ? [] : ['the service did not stop in order']),
  ];
  const shares = profile ? await sharesIn(profileTo) : [];
  const traced = trace ? await readTrace(traceTo, steps) : [];
  const passed = findings.length === 0;
  return result.map((one, n) => ({
    ...{ ...one, stored, shares, passed, findings: n === 0 ? findings : [] },
    trace: traced.filter(({ connections }) => connections === one.point.connections),
  }));
}

/** A process under load. */
interface Target {
  readonly url: string;
  readonly pid: number;
  readonly died: AbortSignal;
}

/** Runs the warm-up, then each step with other customers. The targets share connections, and have the same sales. */
async function attack(
  targets: readonly Target[],
  { redisUrls, more }: { readonly redisUrls: readonly string[]; readonly more: readonly number[] },
  cell: LimitCell,
  { generator, signal, onStep, connections, warmupMs, durationMs, stores, scratch }: Measuring,
): Promise<{ readonly result: Results; readonly steps: Step[]; readonly promised: number }> {
  const died = targets.map((target) => target.died);
  const load = { attempts: null, record: false, signal: AbortSignal.any([signal, ...died]) };
  const ids = (count: number): number[] => Array.from({ length: count }, (_, n) => n + 1);
  const pids = targets.map(({ pid }) => pid);
  let promised = 0;
  let loads = 0;
  const prepare = async (step: number, saleIds: number[], ms: number): Promise<RateLoad[]> => {
    const prepared: RateLoad[] = [];
    for (const [n, { url }] of targets.entries()) {
      const share = Math.floor((step + n) / targets.length);
      const prefix = String.fromCharCode('a'.charCodeAt(0) + (cell.customers === null ? loads++ : 0)); // other customers
      const again = cell.customers !== null && { customers: cell.customers };
      const one = { ...load, url, saleIds, connections: share, prefix, durationMs: ms, ...again };
      const tickets = cell.tickets && { tickets: await writeTickets(scratch, one) };
      if (share > 0) prepared.push({ ...one, ...tickets });
    }
    return prepared;
  };
  const run = async (prepared: RateLoad[]): Promise<RateNumbers> => {
    const result = merged(await Promise.all(prepared.map((one) => generator.run(one))));
    promised = cell.customers ?? promised + result.answers - result.refused;
    return result;
  };
  onStep('warming up');
  if (warmupMs > 0) await run(await prepare(Math.max(...connections), ids(cell.sales), warmupMs));
  const result: Results = [];
  const steps: Step[] = [];
  for (const step of connections) {
    onStep(`${step} connections`);
    const prepared = await prepare(step, ids(cell.targets), durationMs);
    const memory: [number, number][] = [];
    const ofRun = redisUrls.length > 0 && cell.standby === null;
    const postgresPid = ofRun ? stores.postgresPid : null;
    const end = await startCpu({ servicePids: pids, redisUrls, postgresPids: [postgresPid, ...more] });
    const sinceMs = performance.now();
    const since1970Ms = performance.timeOrigin + sinceMs;
    const timer = setInterval(() => {
      const bytes = residentBytes(pids[0]!);
      if (bytes !== null) memory.push([(performance.now() - sinceMs) / 1_000, bytes / mebibyte]);
    }, durationMs / readings);
    const rate = await run(prepared).finally(() => clearInterval(timer));
    steps.push({ connections: step, sinceMs: since1970Ms, untilMs: since1970Ms + rate.durationMs });
    const point = { connections: step };
    result.push({ ...resultOf(rate, await end(), cell.answer), memory, point, how: generator.name });
  }
  return { result, steps, promised };
}

function resultOf(
  { durationMs, answers, refused, unanswered, latencyMs, cpuS: generatorS }: RateNumbers,
  { serviceS, redisS, postgresS }: CpuUsage,
  expected: LimitCell['answer'],
): Omit<Bare<LimitResult>, 'point' | 'how' | 'memory'> {
  const counted = { accepted: answers - refused, 'sold-out': refused, any: answers }[expected];
  const others = answers - counted + unanswered;
  const otherShare = others / Math.max(1, answers + unanswered);
  const invalid: string[] = [];
  const per = (seconds: number | null) =>
    seconds === null || answers === 0 ? null : (seconds * 1e6) / answers;
  if (counted === 0) invalid.push('nothing was answered as expected');
  else if (otherShare > othersWithin)
    invalid.push(`${percent(otherShare)} of the answers were of another kind, such as busy`);
  if (serviceS !== null && generatorS !== null && generatorS > serviceS && expected === 'accepted')
    invalid.push('the generator used more CPU than the server');
  return {
    ...{ ...nothing, others, answers, latencyMs, invalid, perSecond: counted / (durationMs / 1_000) },
    serviceCpuUs: per(serviceS),
    redisCpuUs: per(redisS),
    postgresCpuUs: per(postgresS),
    utilization: serviceS === null ? null : serviceS / (durationMs / 1_000),
  };
}

let attempts = 0;
/** An attempt of the bench itself: a generator counts refusals, not their reasons. @returns "201", "409 sold-out" */
async function attempt(url: string, { tickets }: LimitCell): Promise<string> {
  const userId = `own-${++attempts}`;
  const headers = tickets ? { authorization: `Bearer ${ticketFor(1, userId)}` } : {};
  try {
    const wait = { timeoutMs: requestMs };
    const { status, text } = await post(`${url}/sales/1/orders`, { userId }, headers, wait);
    return `${status} ${problemIn(text) ?? ''}`.trim();
  } catch {
    return '504, no answer in time';
  }
}

/** Pins a service, and sends attempts until one is accepted. @param isFirst it creates the sales that it deals */
async function untilSelling(
  { url, pid }: Pick<Service, 'url' | 'pid'>,
  cell: LimitCell,
  { signal, layout }: Measuring,
  isFirst: boolean,
): Promise<void> {
  await pin(pid!, layout.server); // local: see place.ts
  if (isFirst && cell.cells !== null) await createSales(url, cell.sales, cell.stock);
  const untilMs = performance.now() + readyMs;
  for (;;) {
    const answer = await attempt(url, cell);
    if (answer.startsWith('20')) return;
    if (performance.now() > untilMs || !answer.startsWith('5'))
      throw new Error(`the first attempt was answered ${answer}`);
    await sleep(sampleEveryMs, undefined, { signal });
  }
}

/** Collects answers until `ended` fires. */
async function sample(url: string, cell: LimitCell, ended: AbortSignal): Promise<Set<string>> {
  const answers = new Set<string>();
  while (!ended.aborted) {
    answers.add(await attempt(url, cell));
    await sleep(sampleEveryMs, undefined, { signal: ended }).catch(() => {});
  }
  return answers;
}
