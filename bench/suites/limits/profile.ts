/**
 * `npm run bench -- profile`: where the time of an attempt goes. CPU of service, Redis and Postgres for each variant of the
 * service, and a CPU profile of the first one.
 *
 * Every variant is measured once a round, in a service process, by the same closed loop of attempts that are all sold.
 * CPU time is counted: a busy machine makes it larger, but not twice as large. The profile is V8's sampling profiler
 * (`node --cpu-prof`), taken in the first round in another service; the samples of its first half do not count.
 */
import { mkdtemp, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { limits } from '../../../src/config/limits.ts';
import { migrate } from '../../../src/store/postgres/migrate.ts';
import { createSale } from '../../kit/admin.ts';
import { startCpu } from '../../kit/cpu.ts';
import type { Environment } from '../../kit/environment.ts';
import { type MetricRow, metricsOf } from '../../kit/metrics.ts';
import { noShedding, startService } from '../../kit/service.ts';
import type { Bare, CellBase, Suite, TrialBase } from '../../kit/suite.ts';
import { percent } from '../../kit/text.ts';
import { openPlace, type Place, type PlaceOptions, placeSpecs, readPlace } from './place.ts';
import { type Share, shareOfTime } from './profile-shares.ts';

interface ProfileOptions extends PlaceOptions {
  /** Attempts that are measured, after as many that warm up. */
  readonly attempts: number;
  readonly connections: number;
  /** How many of the variants. */
  readonly variants: number;
}

/** A change of the service. */
interface Variant extends CellBase {
  /** What Node is started with. */
  readonly nodeOptions: readonly string[];
  /** For Postgres, once the tables exist. */
  readonly sql: string | null;
}

interface ProfileResult extends TrialBase {
  /** CPU for an attempt, µs. */
  readonly cpuUs: {
    readonly service: number | null;
    readonly redis: number | null;
    readonly postgres: number | null;
  };
  readonly attemptsPerSecond: number;
  /** By owner, of the profile; empty: none was taken. */
  readonly shares: readonly Share[];
}

const limitsUrl = new URL('../../../dist/config/limits.js', import.meta.url).href;

/** Options of Node with which the service has other limits than those of src/config/limits.ts. */
function withLimits(changed: Partial<Record<keyof typeof limits, number>>): readonly string[] {
  const module = `import { limits } from ${JSON.stringify(limitsUrl)}; Object.assign(limits, ${JSON.stringify(changed)});`;
  return ['--import', `data:text/javascript,${encodeURIComponent(module)}`];
}

const { scriptInFlight: inFlight, scriptBatchSize: size, postgresPoolSize: pool } = limits;
const variant = (
  name: string,
  summary: string,
  changed: Parameters<typeof withLimits>[0] = {},
  more: Partial<Variant> = {},
): Variant => {
  const nodeOptions = Object.keys(changed).length === 0 ? [] : withLimits(changed);
  return { name, summary, nodeOptions, sql: null, unsafe: false, control: false, ...more };
};
const fewer = { nodeOptions: ['--max-semi-space-size=16'] };
const four = { scriptInFlight: 4, commitInFlight: 4, batchEagerBelow: size };
const single = { scriptBatchSize: 1, commitBatchSize: 1, scriptInFlight: pool, commitInFlight: pool };
const noKey = { sql: 'ALTER TABLE orders DROP CONSTRAINT orders_sale_id_fkey' };
const noWait = {
  sql: `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$`,
};
const variants: readonly Variant[] = [
  variant('as it is', 'the service as `npm start` runs it'),
  variant('smaller semi-spaces', '`--max-semi-space-size=16`, Node’s default: more is copied', {}, fewer),
  variant('one batch in flight', `to each store, instead of ${inFlight}`, {
    scriptInFlight: 1,
    commitInFlight: 1,
  }),
  variant('two batches in flight', 'whether the second is full or not', { batchEagerBelow: size }),
  variant('four batches in flight', 'full or not', four),
  variant('batches of at most 64', `attempts, instead of ${size}`, {
    scriptBatchSize: 64,
    commitBatchSize: 64,
  }),
  variant('no batches', 'each attempt is a script call and a statement', single),
  variant(
    'no foreign key',
    'from `orders` to `sales`: Postgres need not look whether the sale exists',
    {},
    noKey,
  ),
  variant('no wait for the disk', '`synchronous_commit = off`, which can lose orders', {}, noWait),
];

const strategy = 'lua';
const lastHalf = 0.5;

/** @param profileTo a folder for the profile; null: none is taken, which costs time, too */
async function measure(
  { nodeOptions, sql }: Variant,
  { attempts, connections }: ProfileOptions,
  { stores, generator }: Place,
  {
    name,
    signal,
    profileTo,
  }: { readonly name: string; readonly signal: AbortSignal; readonly profileTo: string | null },
): Promise<Pick<ProfileResult, 'cpuUs' | 'attemptsPerSecond'>> {
  await using own = await stores.fresh(name);
  if (sql !== null) await tellPostgres(own.databaseUrl, sql);
  const profiler = profileTo === null ? [] : ['--cpu-prof', `--cpu-prof-dir=${profileTo}`];
  await using service = await startService(
    { strategy, lock: null, ...own, env: noShedding },
    { signal, nodeOptions: [...nodeOptions, ...profiler] },
  );
  const load = { url: service.url, connections, durationMs: null, attempts, record: false };
  const run = async (prefix: string) => {
    const saleIds = [await createSale(service.url, 2 * attempts)]; // a generator sends a few more
    const result = await generator.run({
      ...load,
      saleIds,
      prefix,
      signal: AbortSignal.any([signal, service.died]),
    });
    if (result.refused > 0) throw new Error(`${result.refused} of ${attempts} attempts were refused`);
    return result;
  };
  await run('a');
  const end = await startCpu({
    servicePid: service.pid,
    redisUrl: own.redisUrl,
    postgresPid: stores.postgresPid,
  });
  const { answers, durationMs } = await run('b');
  const { serviceS, redisS, postgresS } = await end();
  const us = (seconds: number | null): number | null => (seconds === null ? null : (seconds * 1e6) / answers);
  return {
    cpuUs: { service: us(serviceS), redis: us(redisS), postgres: us(postgresS) },
    attemptsPerSecond: answers / (durationMs / 1_000),
  };
}

async function profileShares(
  options: ProfileOptions,
  place: Place,
  { scratch, signal }: Environment,
): Promise<readonly Share[]> {
  const folder = await mkdtemp(join(scratch, 'profile-'));
  await measure(variants[0]!, options, place, { name: 'profile', signal, profileTo: folder });
  const files = await Promise.all(
    (await readdir(folder)).map((file) => readFile(join(folder, file), 'utf8')),
  );
  const largest = files.sort((a, b) => b.length - a.length)[0]; // others are those of helper processes
  return largest === undefined ? [] : shareOfTime(JSON.parse(largest), lastHalf);
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

async function runVariant(
  variant: Variant,
  round: number,
  options: ProfileOptions,
  {
    place,
    environment,
    name,
    onStep,
  }: {
    readonly place: Place;
    readonly environment: Environment;
    readonly name: string;
    readonly onStep: (step: string) => void;
  },
): Promise<Bare<ProfileResult>> {
  onStep('measuring');
  const { signal } = environment;
  const measured = await measure(variant, options, place, { name, signal, profileTo: null });
  const isProfiled = round === 1 && variant.name === variants[0]?.name && !variant.control;
  if (isProfiled) onStep('profile');
  const shares = isProfiled ? await profileShares(options, place, environment) : [];
  return { point: {}, ...measured, shares, invalid: [], findings: [] };
}

const rows: readonly MetricRow<ProfileResult>[] = [
  ['attemptsPerSecond', 'attempts/s', '/s', '+', (r) => r.attemptsPerSecond],
  ['serviceUs', 'service', 'µs', '-', ({ cpuUs }) => cpuUs.service],
  ['redisUs', 'Redis', 'µs', '-', ({ cpuUs }) => cpuUs.redis],
  ['postgresUs', 'Postgres', 'µs', '-', ({ cpuUs }) => cpuUs.postgres],
];

export const profile: Suite<ProfileOptions, Variant, ProfileResult> = {
  name: 'profile',
  title: 'Shows where the time of an attempt with `lua` goes, and what some changes would save.',
  help: 'Stores are always local.',
  options: {
    attempts: {
      kind: 'whole',
      min: 100,
      max: 1_000_000,
      help: 'attempts that are measured, after as many to warm up (50000; smoke 2000)',
    },
    connections: { kind: 'whole', min: 1, max: 10_000, help: 'connections of the load (512)' },
    ...placeSpecs,
  },
  rounds: { canonical: 5, smoke: 1 },
  read: (given, { smoke }) => ({
    ...readPlace(given),
    attempts: given.number('attempts', smoke ? 2_000 : 50_000),
    connections: given.number('connections', 512),
    variants: smoke ? 2 : variants.length,
  }),
  plan: async (options) => ({
    cells: variants.slice(0, options.variants),
    points: [{}],
    baseline: variants[0]?.name ?? null,
    control: true,
    ladder: null,
    shown: { ...options },
  }),
  async open(options, environment) {
    const place = await openPlace(
      { ...options, pin: options.pin === 'auto' ? 'none' : options.pin },
      environment,
    );
    return {
      generator: place.text,
      versions: place.stores.versions,
      runTrial: async ({ cell, round, number }, onStep) => [
        await runVariant(cell, round, options, { place, environment, name: `${number}_profile`, onStep }),
      ],
      [Symbol.asyncDispose]: () => place[Symbol.asyncDispose](),
    };
  },
  metrics: metricsOf(rows, {}),
  curves: [],
  checks: [],
  goals: [],
  verdict: () => null,
  report: {
    title: 'Where the time of an attempt goes',
    lead: 'attemptsPerSecond',
    leadText: 'attempts a second',
    noun: 'variant',
    columns: ['serviceUs', 'redisUs', 'postgresUs', 'attemptsPerSecond'],
    sections: [
      {
        title: 'CPU',
        text: 'CPU for an attempt that is sold and committed.',
        charts: [
          {
            kind: 'bars',
            title: 'By process',
            metrics: ['serviceUs', 'redisUs', 'postgresUs'],
            stacked: true,
          },
        ],
      },
    ],
    notes: ['Each variant has a service and empty stores in each round. CPU time is counted, not sampled.'],
  },
  tables(results) {
    const shares = results.flatMap((result) => result.shares);
    if (shares.length === 0) return [];
    const rows = shares.map(({ owner, share }) => [owner, percent(share, 1)]);
    return [{ title: 'CPU profile of the service', columns: ['owner', 'share'], rows }];
  },
};
