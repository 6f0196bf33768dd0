/**
 * The way of docs/how-to/upgrade.md from 1.0.0 to this version and back, by the commands of the page, while customers buy, pay and cancel.
 * 1.0.0 is built from the history of this repository: without it, or without a registry for its packages, the tests are skipped.
 * SHOW=1 prints the figures.
 */
import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { HistoryRecord } from '../lab/history.ts';
import { adminHeaders, post } from '../lab/kit/http.ts';
import { removeFolder, temporaryFolder } from '../lab/kit/temporary-folder.ts';
import { users } from './support/client.ts';
import { longestPauseMs } from './support/failover.ts';
import { commandsOf, execute, root, standIns, text } from './support/samples.ts';
import { spawnService } from './support/service.ts';
import { envOf } from './support/stores.ts';
import { bySize } from './support/tier.ts';
import { assertInvariants, TestSale, World } from './support/world.ts';
import type { Size } from './tiers.ts';

/** 1.0.0. */
const COMMIT = 'ae883c6';
const CLIENTS = 8;
const STOCK = 1_000_000;
/** Orders of each stage. */
const ORDERS = 200;
/** A customer's pause between two requests. */
const PAUSE_MS = 10;
/** Units that are left when the last customers come. */
const LEFT = 20;
const NO_REGISTRY = /ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ENOTCACHED|ETIMEDOUT/;

const hasHistory = spawnSync('git', ['cat-file', '-e', `${COMMIT}^{commit}`], { cwd: root }).status === 0;
const [build, migrate, check] = commandsOf(text('docs/how-to/upgrade.md')) as [string, string, string];

let folder: string;
/** The installation of 1.0.0; null: its packages cannot be had. */
let old: string | null = null;
/** `npm run` runs the build of this version. */
let PATH: string;

beforeAll(async () => {
  folder = await temporaryFolder('stampede-test-upgrade-');
  PATH = `${standIns(folder)}:${process.env.PATH}`;
  if (!hasHistory) return;
  const command = build.replace('<URL of this repository>', `'${root}'`).replace('VERSION', COMMIT);
  const built = execute(folder, { npm_config_prefer_offline: 'true' }, 'sh', '-ec', command);
  const problem = await built.then(
    () => null,
    (error: Error) => error,
  );
  if (problem === null) old = path.join(folder, 'stampede-new');
  else if (!NO_REGISTRY.test(problem.message)) throw problem;
}, 900_000);
afterAll(() => removeFolder(folder));

/** Customers of a sale, who come until `end`. Each repeats a request, at the services that are live in turn, until the answer is final. */
function shop(sale: TestSale, live: readonly string[]) {
  let turn = 0;
  let isOver = false;
  const request = async (action: 'purchase' | 'pay' | 'cancel', user: string): Promise<void> => {
    for (;;) {
      const url = live[turn++ % live.length]!;
      const answer = await sale.request(action, user, { url });
      await sleep(PAUSE_MS);
      if (answer !== null && answer.status !== 503) return;
    }
  };
  const customers = users(CLIENTS).map(async (client) => {
    for (let n = 0; !isOver; n++) {
      const user = `${client}-${n}`;
      await request('purchase', user);
      if (n % 3 === 0) await request('pay', user);
      if (n % 3 === 1) await request('cancel', user);
      if (n % 3 === 2) await request('purchase', user); // the same order, perhaps from the other version
    }
  });
  return {
    async end() {
      isOver = true;
      await Promise.all(customers);
    },
  };
}

/** Orders, requests that were answered otherwise than 200, 201 or 409, and the longest time without an order. */
function figures(stage: string, history: readonly HistoryRecord[]): string {
  const placed = history.filter(({ outcome }) => outcome === 'accepted' || outcome === 'replayed');
  const others = history.filter(({ status }) => ![200, 201, 409].includes(status ?? 0));
  const kinds = others.map(({ status, outcome }) => `${status ?? 'no answer'} ${outcome}`);
  const counts = [...new Set(kinds)].map((kind) => `${kinds.filter((one) => one === kind).length} ${kind}`);
  return `${stage}: ${placed.length} orders, others: ${counts.join(', ') || 'none'}; ${Math.round(longestPauseMs(placed))} ms`;
}

const ways = bySize({
  core: [['lua', 'stop']],
  full: [
    ['lua', 'stop'],
    ['group-commit', 'stop'],
  ],
  nightly: [
    ['lua', 'stop'],
    ['group-commit', 'stop'],
    ['lua', 'kill'],
    ['group-commit', 'kill'],
    ['segmented-lock', 'kill'],
  ],
} as Record<Size, ['lua' | 'group-commit' | 'segmented-lock', 'stop' | 'kill'][]>);

it.for(ways)(
  '%s: 1.0.0 and this version sell on the same stores, there and back, after a %s',
  {
    timeout: 900_000,
  },
  async ([strategy, ending], { skip }) => {
    skip(!hasHistory, `commit ${COMMIT} is missing: git fetch --unshallow`);
    skip(old === null, `the packages of 1.0.0 cannot be installed: no registry can be reached`);
    // Each version reads the environment of the other one: 1.0.0 refuses TASK_WEBHOOK_URL=none.
    const env = { TASK_WEBHOOK_URL: '', ...(strategy === 'group-commit' && { REDIS_URL: 'none' }) };
    await using world = await World.open({ strategy, services: 0, processes: true, env });
    const { sql, ownerUrl } = world.stores;
    const ownEnv = { ...envOf(world.stores), STRATEGY: strategy, ...env, MIGRATION_DATABASE_URL: ownerUrl };
    await sql.query('DROP SCHEMA public CASCADE; CREATE SCHEMA public');
    await (await spawnService(ownEnv, { folder: old! })).stop();

    const live: string[] = [];
    const start = async (at?: string) => void live.push(await (await world.start(at)).url);
    /** Ends the service that runs for longest. Until it has ended, it gets requests, and those that it refuses are repeated at the other. */
    const end = async (): Promise<void> => {
      const service = world.services[0]!;
      await service[ending]();
      live.shift();
      world.services.shift();
      await service[Symbol.asyncDispose]();
    };
    await start(old!);
    // Not by the client of the tests: 1.0.0 does not answer as this version's document says.
    const made = await post(
      `${live[0]}/sales`,
      { name: 'test', stock: STOCK, priceCents: 500 },
      adminHeaders(),
    );
    const sale = new TestSale(world, JSON.parse(made.text).id, STOCK, 1);
    const load = shop(sale, live);
    const stages: [name: string, from: number][] = [];
    const stage = async (name: string, change: () => Promise<unknown>): Promise<void> => {
      stages.push([name, sale.ledger.history.length]);
      const before = sale.ledger.ended('accepted').length;
      await change();
      await expect.poll(() => sale.ledger.ended('accepted').length).toBeGreaterThan(before + ORDERS);
    };

    await stage('1.0.0', async () => {});
    await stage('1.0.0, migrated', async () => {
      expect(await execute(folder, { ...ownEnv, PATH }, 'sh', '-ec', migrate)).toContain('20261130');
    });
    await stage('both', () => start());
    await stage('this version', end);
    await stage('both again', () => start(old!));
    await stage('1.0.0 again', end);
    await load.end();
    const { history } = sale.ledger;
    const parts = stages.map(([name, from], n) => figures(name, history.slice(from, stages[n + 1]?.[1])));
    if (process.env.SHOW === '1')
      console.log([`${strategy}, ${ending}`, ...parts, figures('all', history)].join('\n'));

    const { stock, sold } = await sale.units();
    await post(`${live[0]}/sales/${sale.id}/restock`, { units: sold + LEFT - stock }, adminHeaders());
    await assertInvariants(sale);
    expect(await execute(folder, { ...ownEnv, PATH }, 'sh', '-ec', check)).toMatch(/ agrees with /);
  },
);
