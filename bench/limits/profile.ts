/**
 * Where the service's time goes: CPU for each attempt, of service, Redis and Postgres, and a profile of the service.
 *
 * Every variant is measured once a round, in a service of its own, by the same closed loop of attempts that are all sold.
 * CPU time is counted: a machine that others use makes it larger, but not twice as large. The rate, which also tells who
 * waits for whom, is a share of the first variant's in the same round. The profile is V8's sampling profiler
 * (`node --cpu-prof`); only the samples of the last sale count.
 */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { limits } from '../../src/config/limits.ts';
import { migrate } from '../../src/store/migrate.ts';
import { createSale } from '../admin.ts';
import { startCosts } from '../costs.ts';
import { median } from '../kit/statistics.ts';
import type { BenchStores } from '../kit/stores.ts';
import { buyerName } from '../load/attempts.ts';
import { runClosedLoop } from '../load/closed.ts';
import type { Cost } from '../result.ts';
import { startService } from '../service.ts';
import { shareOfTime } from './profile-shares.ts';

export interface ProfileOptions {
  readonly strategy: string;
  readonly rounds: number;
  /** Attempts that are measured, after as many that warm up. */
  readonly attempts: number;
  readonly connections: number;
}

/** A change that is tried. */
interface Variant {
  readonly name: string;
  readonly what: string;
  /** What Node is started with. */
  readonly nodeOptions: readonly string[];
  /** Told to Postgres once the tables are there. */
  readonly sql: string | null;
}

const limitsUrl = new URL('../../dist/config/limits.js', import.meta.url).href;

/** Options of Node with which the service has other limits than those of src/config/limits.ts. */
function withLimits(changed: Partial<Record<keyof typeof limits, number>>): readonly string[] {
  const module = `import { limits } from ${JSON.stringify(limitsUrl)}; Object.assign(limits, ${JSON.stringify(changed)});`;
  return ['--import', `data:text/javascript,${encodeURIComponent(module)}`];
}

const { scriptInFlight: inFlight, scriptBatchSize: batchSize } = limits;
const plain = { nodeOptions: [], sql: null };
const variants: readonly Variant[] = [
  { ...plain, name: 'as it is', what: 'the service as `npm start` runs it' },
  {
    ...plain,
    name: 'smaller semi-spaces',
    what: '`--max-semi-space-size=16`, as Node has it by itself: what is under way is copied more often',
    nodeOptions: ['--max-semi-space-size=16'],
  },
  {
    ...plain,
    name: 'one batch under way',
    what: `at a time towards each store, instead of ${inFlight} of which the second has to be full`,
    nodeOptions: withLimits({ scriptInFlight: 1, writerInFlight: 1 }),
  },
  {
    ...plain,
    name: 'two batches under way',
    what: 'whether the second is full or not',
    nodeOptions: withLimits({ batchFew: batchSize }),
  },
  {
    ...plain,
    name: 'four batches under way',
    what: 'full or not',
    nodeOptions: withLimits({ scriptInFlight: 4, writerInFlight: 4, batchFew: batchSize }),
  },
  {
    ...plain,
    name: 'batches of at most 64',
    what: `attempts, instead of ${batchSize}`,
    nodeOptions: withLimits({ scriptBatchSize: 64, writerBatchSize: 64 }),
  },
  {
    ...plain,
    name: 'no batches',
    what: 'each attempt is a script call and a statement of its own, as many under way as Postgres has connections for',
    nodeOptions: withLimits({
      ...{ scriptBatchSize: 1, writerBatchSize: 1 },
      ...{ scriptInFlight: limits.postgresPoolSize, writerInFlight: limits.postgresPoolSize },
    }),
  },
  {
    ...plain,
    name: 'no foreign key',
    what: 'from `orders` to `sales`: Postgres would not look, and lock, for each order that its sale is there',
    sql: 'ALTER TABLE orders DROP CONSTRAINT orders_sale_id_fkey',
  },
  {
    ...plain,
    name: 'no wait for the disk',
    what: '`synchronous_commit = off`, which would lose orders when Postgres loses its machine',
    sql: `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$`,
  },
];

/** CPU for an attempt, µs. */
export interface CpuPerAttempt {
  readonly service: number | null;
  readonly redis: number | null;
  readonly postgres: number | null;
}

interface Measured {
  readonly cpu: CpuPerAttempt;
  readonly attemptsPerS: number;
}

export interface ProfileReport {
  readonly options: ProfileOptions;
  /** Medians over the rounds. */
  readonly variants: readonly {
    readonly name: string;
    readonly what: string;
    readonly cpu: CpuPerAttempt;
    /** Attempts per second ÷ those of the first variant in the same round. */
    readonly rates: readonly number[];
  }[];
  /** Of the service's CPU time, by who spent it; the largest first. */
  readonly shares: readonly { readonly who: string; readonly share: number }[];
}

export interface ProfileContext {
  readonly stores: BenchStores;
  readonly signal: AbortSignal;
  readonly onStep: (step: string) => void;
}

const usPerAttempt = 100; // a second for 10,000 attempts is 100 µs for each
const requestTimeoutMs = 10_000;
const durationMs = 120_000;

/** @throws when an attempt is not accepted: then it is not the purchase path that was measured */
export async function runProfile(options: ProfileOptions, context: ProfileContext): Promise<ProfileReport> {
  const rounds: Measured[][] = [];
  for (let round = 1; round <= options.rounds; round++) {
    const measured: Measured[] = [];
    for (const [n, variant] of variants.entries()) {
      context.onStep(`round ${round} of ${options.rounds}: ${variant.name}`);
      measured.push(await measure(variant, options, context, `${round}_${n}`, null));
    }
    rounds.push(measured);
  }
  const folder = await mkdtemp(join(tmpdir(), 'stampede-profile-'));
  try {
    context.onStep('profile');
    const [first] = variants;
    if (first !== undefined) await measure(first, options, context, 'profile', folder);
    const [file] = await largestFirst(folder);
    const shares = file === undefined ? [] : shareOfTime(JSON.parse(await readFile(file, 'utf8')), lastHalf);
    return { options, variants: variants.map((variant, n) => rowOf(variant, n, rounds)), shares };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The sale that counts comes last, and the service is stopped right after it. */
const lastHalf = 0.5;

function rowOf({ name, what }: Variant, n: number, rounds: readonly (readonly Measured[])[]) {
  const all = rounds.flatMap((measured) => measured[n] ?? []);
  const of = (pick: (cpu: CpuPerAttempt) => number | null): number | null => {
    const values = all.map(({ cpu }) => pick(cpu)).filter((value) => value !== null);
    return values.length === 0 ? null : Math.round(median(values) * 10) / 10;
  };
  const rates = rounds.flatMap((measured) => {
    const [first, own] = [measured[0], measured[n]];
    if (first === undefined || own === undefined) return [];
    return Math.round((own.attemptsPerS / first.attemptsPerS) * 1_000) / 1_000;
  });
  const cpu = { service: of((c) => c.service), redis: of((c) => c.redis), postgres: of((c) => c.postgres) };
  return { name, what, cpu, rates };
}

/** @param profileTo a folder for the profile; null: none is taken, which costs time, too */
async function measure(
  variant: Variant,
  { strategy, attempts, connections }: ProfileOptions,
  { stores, signal }: ProfileContext,
  name: string,
  profileTo: string | null,
): Promise<Measured> {
  await using place = await stores.fresh(name);
  if (variant.sql !== null) await tellPostgres(place.databaseUrl, variant.sql);
  const profiler = profileTo === null ? [] : ['--cpu-prof', `--cpu-prof-dir=${profileTo}`];
  await using service = await startService(
    { strategy, lock: null, ...place, env: { ADMISSION_MS: '60000' } },
    { signal, nodeOptions: [...variant.nodeOptions, ...profiler] },
  );
  let cost: Cost | null = null;
  let attemptsPerS = 0;
  for (const first of [0, attempts]) {
    const saleId = await createSale(service.url, attempts);
    const { databaseUrl, redisUrl } = place;
    const local = { databaseUrl, redisUrl, postgresPid: stores.postgresPid };
    const costs = await startCosts({ servicePid: service.pid, ...local });
    const users = Array.from({ length: attempts }, (_, n) => buyerName(first + n));
    const load = { url: service.url, saleIds: [saleId], users, connections, durationMs, requestTimeoutMs };
    const begunMs = performance.now();
    const { history } = await runClosedLoop({ ...load, signal });
    cost = await costs.stop(attempts);
    signal.throwIfAborted();
    const accepted = history.filter(({ outcome }) => outcome === 'accepted').length;
    if (accepted < attempts) throw new Error(`only ${accepted} of ${attempts} attempts were accepted`);
    attemptsPerS = attempts / ((performance.now() - begunMs) / 1_000);
  }
  const us = (seconds: number | null | undefined): number | null =>
    seconds == null ? null : seconds * usPerAttempt;
  const { service: ownS, redis, postgres } = cost?.cpu ?? {};
  return { cpu: { service: us(ownS), redis: us(redis), postgres: us(postgres) }, attemptsPerS };
}

/** Before the service connects. */
async function tellPostgres(databaseUrl: string, sql: string): Promise<void> {
  await migrate(databaseUrl);
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}

async function largestFirst(folder: string): Promise<string[]> {
  const files = (await readdir(folder)).map((name) => join(folder, name));
  const sized = await Promise.all(files.map(async (file) => ({ file, size: (await readFile(file)).length })));
  return sized.sort((a, b) => b.size - a.size).map(({ file }) => file);
}
