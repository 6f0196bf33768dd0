/** Measures one cell at each number of connections, on one server: warm-up, steps, settled, stopped, audited. */
import { setTimeout as sleep } from 'node:timers/promises';
import { migrate } from '../../../src/store/postgres/migrate.ts';
import { strategies } from '../../../src/strategies/registry.ts';
import { auditCounts, settleAll } from '../../audit/counts.ts';
import { cpuSeconds } from '../../kit/cpu.ts';
import { MissingServersError } from '../../kit/environment.ts';
import { measureReference } from '../../kit/pgbench.ts';
import { type Layout, pin } from '../../kit/pin.ts';
import { startProgram } from '../../kit/processes.ts';
import { insertSales } from '../../kit/sales.ts';
import { noShedding, type Service, startService, youngGeneration } from '../../kit/service.ts';
import type { BenchStores } from '../../kit/stores.ts';
import type { Bare, Trial, TrialBase } from '../../kit/suite.ts';
import { number, percent, quantity } from '../../kit/text.ts';
import type { Generator, RateResult } from '../../load/rate.ts';
import type { Listening } from './bare-server.ts';
import type { LimitCell, ServiceSubject } from './cells.ts';

export interface LimitResult extends TrialBase {
  /** What made the load. */
  readonly how: string;
  /** Answers of the expected kind, or orders, a second. */
  readonly perSecond: number;
  readonly counted: number;
  /** Answers of another kind, such as busy. */
  readonly others: number;
  readonly unanswered: number;
  readonly latencyMs: { readonly p50: number; readonly p99: number } | null;
  /** CPU of the server for an answer, µs; null: not known. */
  readonly serviceCpuUs: number | null;
  /** Share of one processor that the server used. */
  readonly utilization: number | null;
  /** Null: there is nothing to audit. */
  readonly passed: boolean | null;
}

export interface Measuring {
  readonly durationMs: number;
  readonly warmupMs: number;
  readonly connections: readonly number[];
  readonly layout: Layout;
  readonly generator: Generator;
  readonly stores: BenchStores;
  readonly scratch: string;
  readonly signal: AbortSignal;
  readonly onStep: (step: string) => void;
}

/** Units that no load sells. */
const plenty = 1_000_000_000;
/** A service with 1,000 sales or 1,000,000 buyers takes its time until it sells. */
const readyMs = 180_000;
const requestMs = 20_000;
/** Between two attempts of the bench while a sold-out sale is under load. */
const sampleEveryMs = 200;
/** A closed loop that is answered busy comes again at once: beyond this share it measures how fast a service refuses. */
const othersWithin = 0.1;

export async function measureCell(
  trial: Trial<LimitCell>,
  measuring: Measuring,
): Promise<Bare<LimitResult>[]> {
  const { subject } = trial.cell;
  const name = `${trial.number}_limits`;
  if (subject.kind === 'bare') return measureBare(measuring);
  await using stores = await measuring.stores.fresh(name);
  if (subject.kind === 'service') return await measureService(subject, stores, measuring);
  measuring.onStep('pgbench');
  const { databaseUrl } = stores;
  const { warmupMs, durationMs, layout, scratch: folder, signal } = measuring;
  const options = {
    strategy: 'for-update',
    databaseUrl,
    warmupMs: Math.min(2_000, warmupMs),
    durationMs,
    layout,
    folder,
    signal,
  };
  const reference = await measureReference(options);
  if (reference === null) throw new MissingServersError('pgbench is not installed');
  const { how, perSecond } = reference;
  const empty = {
    others: 0,
    unanswered: 0,
    latencyMs: null,
    serviceCpuUs: null,
    utilization: null,
    passed: null,
  };
  const counted = Math.round((perSecond * durationMs) / 1_000);
  // Its connections are those of the service's pool: it belongs to the first step.
  const point = { connections: measuring.connections[0] ?? 0 };
  return [{ ...empty, how, perSecond, counted, point, invalid: [], findings: [] }];
}

async function measureBare(measuring: Measuring): Promise<Bare<LimitResult>[]> {
  await using program = startProgram<never, Listening>('suites/limits/bare-server.ts', [youngGeneration]);
  const { port } = await program.receive((message): message is Listening => message.port > 0, measuring);
  await pin(program.pid, measuring.layout.server);
  const server = { url: `http://127.0.0.1:${port}`, pid: program.pid, died: program.died };
  const { results, refused } = await attack(server, [1], [1], 'accepted', measuring);
  if (refused > 0) throw new Error(`the bare server refused ${number(refused)} requests`);
  return results;
}

async function measureService(
  subject: ServiceSubject,
  stores: { readonly databaseUrl: string; readonly redisUrl: string },
  measuring: Measuring,
): Promise<Bare<LimitResult>[]> {
  const { signal, onStep, layout } = measuring;
  const { strategy, confirm, answer, sales, targets, buyers } = subject;
  onStep('starting');
  await migrate(stores.databaseUrl);
  await insertSales(stores.databaseUrl, {
    sales,
    buyers,
    stock: answer === 'sold-out' ? 1 : plenty + buyers,
  });
  signal.throwIfAborted();
  const env = { ...noShedding, CONFIRM: confirm };
  await using service = await startService({ strategy, lock: null, ...stores, env }, { signal });
  await pin(service.pid, layout.server);
  const own = new OwnAttempts(service);
  await own.untilSelling(signal);
  const ids = (count: number): number[] => Array.from({ length: count }, (_, n) => n + 1);
  const samples = answer === 'sold-out' ? own.sample() : null;
  const { results, accepted } = await attack(service, ids(sales), ids(targets), answer, measuring).finally(
    () => samples?.stop(),
  );
  await samples?.done;
  onStep('settling');
  await settleAll(stores);
  const stopped = await service.stop();
  onStep('audit');
  const inRedis = strategies.get(strategy)?.description.store === 'redis';
  const promised = accepted + own.accepted;
  const findings = [...(await auditCounts({ ...stores, inRedis, accepted: promised })), ...own.findings];
  if (answer === 'sold-out' && promised > 1)
    findings.push(`${number(promised)} answers promised the one unit`);
  if (!stopped) findings.push('the service did not stop in order');
  return results.map((result, n) => ({
    ...result,
    passed: findings.length === 0,
    findings: n === 0 ? findings : [],
  }));
}

interface Server {
  readonly url: string;
  readonly pid: number;
  readonly died: AbortSignal;
}

/** The warm-up, then each step with other customers. */
async function attack(
  { url, pid, died }: Server,
  allSales: readonly number[],
  saleIds: readonly number[],
  expected: ServiceSubject['answer'],
  { generator, signal, onStep, connections, warmupMs, durationMs }: Measuring,
): Promise<{ readonly results: Bare<LimitResult>[]; readonly accepted: number; readonly refused: number }> {
  const load = { url, attempts: null, record: false, signal: AbortSignal.any([signal, died]) };
  const total = { accepted: 0, refused: 0 };
  const add = ({ answers, refused }: RateResult): void => {
    total.accepted += answers - refused;
    total.refused += refused;
  };
  onStep('warming up');
  const most = Math.max(...connections);
  if (warmupMs > 0) {
    add(
      await generator.run({
        ...load,
        saleIds: allSales,
        connections: most,
        prefix: 'a',
        durationMs: warmupMs,
      }),
    );
  }
  const results: Bare<LimitResult>[] = [];
  for (const [n, step] of connections.entries()) {
    onStep(`${step} connections`);
    const before = cpuSeconds(pid);
    const prefix = String.fromCharCode('b'.charCodeAt(0) + n);
    const result = await generator.run({ ...load, saleIds, connections: step, prefix, durationMs });
    const after = cpuSeconds(pid);
    add(result);
    const cpuS = before === null || after === null ? null : after - before;
    results.push(resultOf(result, cpuS, expected, step, generator.name));
  }
  return { results, ...total };
}

function resultOf(
  { durationMs, answers, refused, unanswered, latencyMs, cpuS: generatorS }: RateResult,
  cpuS: number | null,
  expected: ServiceSubject['answer'],
  connections: number,
  how: string,
): Bare<LimitResult> {
  const counted = expected === 'accepted' ? answers - refused : refused;
  const others = answers - counted;
  const otherShare = (others + unanswered) / Math.max(1, answers + unanswered);
  const invalid: string[] = [];
  if (counted === 0) invalid.push('nothing was answered as expected');
  else if (otherShare > othersWithin) {
    invalid.push(
      `${percent(otherShare)} of the answers at ${connections} connections were of another kind, busy for instance`,
    );
  }
  if (cpuS !== null && generatorS !== null && generatorS > cpuS && expected === 'accepted') {
    invalid.push(`the generator used more CPU than the server at ${connections} connections`);
  }
  return {
    point: { connections },
    how,
    perSecond: counted / (durationMs / 1_000),
    counted,
    others,
    unanswered,
    latencyMs,
    serviceCpuUs: cpuS === null || answers === 0 ? null : (cpuS * 1e6) / answers,
    utilization: cpuS === null ? null : cpuS / (durationMs / 1_000),
    passed: null,
    invalid,
    findings: [],
  };
}

/** Attempts of the bench itself, whose answers it reads: a generator counts refusals, not what they say. */
class OwnAttempts {
  readonly findings: string[] = [];
  accepted = 0;
  readonly #service: Service;
  #attempts = 0;

  constructor(service: Service) {
    this.#service = service;
  }

  async untilSelling(signal: AbortSignal): Promise<void> {
    const untilMs = performance.now() + readyMs;
    for (;;) {
      const { status, type } = await this.#attempt().catch(() => ({
        status: 504,
        type: 'no answer in time',
      }));
      if (status === 201 || status === 202) return;
      if (performance.now() > untilMs || status < 500)
        throw new Error(`the first attempt was answered with ${status} ${type}`);
      await sleep(sampleEveryMs, undefined, { signal }).catch(() => signal.throwIfAborted());
    }
  }

  /** Attempts on the sold-out sale until it is stopped; every answer must be sold-out. */
  sample(): { stop(): void; readonly done: Promise<void> } {
    const stopped = new AbortController();
    const { signal } = stopped;
    const look = async (): Promise<void> => {
      while (!signal.aborted) {
        const { status, type } = await this.#attempt().catch(() => ({
          status: 504,
          type: 'no answer in time',
        }));
        if (status !== 409 || !type.endsWith('/sold-out')) {
          this.findings.push(
            `${quantity(1, 'attempt')} on a sold-out sale was answered with ${status} ${type}`,
          );
        }
        await sleep(sampleEveryMs, undefined, { signal }).catch(() => {});
      }
    };
    return { stop: () => stopped.abort(), done: look() };
  }

  async #attempt(): Promise<{ readonly status: number; readonly type: string }> {
    this.#attempts++;
    const response = await fetch(`${this.#service.url}/sales/1/orders`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ userId: `own-${this.#attempts}` }),
      signal: AbortSignal.timeout(requestMs),
    });
    const { type } = (await response.json()) as { readonly type?: unknown };
    if (response.ok) this.accepted++;
    return { status: response.status, type: typeof type === 'string' ? type : '' };
  }
}
