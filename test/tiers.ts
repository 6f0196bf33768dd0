/**
 * The two tiers of the tests: projects of vitest.config.ts, with one more for `TIMED` and one for Valkey. `npm test` runs `quick`;
 * `npm run test:all` runs all projects. A test file is in `quick` unless a list here says otherwise. Running one file by its name
 * runs its tests in every project.
 *
 * The full tier has three sizes. `core` is for slow machines: .ci/run chooses it. `nightly` is what .github/workflows/nightly.yml runs.
 */

export const SIZES = ['core', 'full', 'nightly'] as const;
export type Size = (typeof SIZES)[number];

/** Contract tests that the quick tier runs whole, except timed ones; of the others it runs the core. */
export const WHOLE_IN_QUICK = ['lock-postgres-row', 'lock-redis'];

/** Files that, like those of `TIMED`, run only in the full tier: they take more than about ten seconds, or bound a duration. */
export const FULL_ONLY = [
  'test/access/lottery.test.ts',
  'test/backup.test.ts',
  'test/bench/faults.test.ts',
  'test/bench/generators.test.ts',
  'test/bench/locks.test.ts',
  'test/bench/race-run.test.ts',
  'test/bench/race.test.ts',
  'test/bench/suites.test.ts',
  'test/contract/behind-pgbouncer.test.ts',
  'test/contract/lock-behind-others.test.ts',
  'test/contract/lock-order.test.ts',
  'test/contract/locks-on-cluster.test.ts',
  'test/contract/oldest-postgres.test.ts',
  'test/contract/redis-acl.test.ts',
  'test/contract/who-may-buy.test.ts',
  'test/client/integrate.test.ts',
  'test/examples/shop.test.ts',
  'test/helm.test.ts',
  'test/http/slow-clients.test.ts',
  'test/http/store-failures.test.ts',
  'test/image.test.ts',
  'test/lab/explore.test.ts',
  'test/lab/far-stores.test.ts',
  'test/lab/service.test.ts',
  'test/lab/stores.test.ts',
  'test/local/postgres-server.test.ts',
  'test/local/stores.test.ts',
  'test/locks/*.test.ts',
  'test/metrics/alerts.test.ts',
  'test/metrics/error-log.test.ts',
  'test/orders/accepted.test.ts',
  'test/orders/cluster.test.ts',
  'test/orders/faults.test.ts',
  'test/orders/isolation.test.ts',
  'test/orders/outages.test.ts',
  'test/orders/oversold.test.ts',
  'test/orders/patroni.test.ts',
  'test/commands/check-server.test.ts',
  'test/commands/reconcile.test.ts',
  'test/orders/replicated.test.ts',
  'test/orders/sale-refunds.test.ts',
  'test/orders/sentinel.test.ts',
  'test/orders/standby.test.ts',
  'test/bench/points.test.ts',
  'test/samples.test.ts',
  'test/service/cells.test.ts',
  'test/scripts.test.ts',
  'test/store/tls.test.ts',
  'test/strategies/lease-bound.test.ts',
  'test/strategies/skip-locked.test.ts',
  'test/strategies/kit/sold-out-latch.test.ts',
  'test/tasks/delivery.test.ts',
  'test/test-run.test.ts',
  'test/upgrade.test.ts',
  'test/service/tracing.test.ts',
  'test/web/console.test.ts',
  'test/web/shop.test.ts',
  'test/web/slow-answers.test.ts',
  'test/web/waiting-room.test.ts',
];

/** Files that run in the full tier apart from its others: they bound durations, which concurrent work would exceed. */
export const TIMED = ['test/http/flood.test.ts', 'test/http/rolling-restart.test.ts'];

/** Files with tests of both tiers; test/support/tier.ts says which ones run. */
export const IN_BOTH = [
  'test/contract/*.test.ts',
  'test/orders/redis-loss.test.ts',
  'test/store/pipeline.test.ts',
];

/** Files that run in the nightly size alone. */
export const NIGHTLY: readonly string[] = [
  'test/local/deleted-folder.test.ts',
  'test/orders/random-faults.test.ts',
];

/** Files that have nothing left for the full tier. */
export const QUICK_ONLY = [
  'advisory-lock',
  'conditional-update',
  'for-update',
  'for-update-prisma',
  'global-lock',
  'group-commit',
  'lua',
  'model',
  'optimistic',
  'postgres-strategies',
  'segmented-lock',
  'skip-locked',
  'unique-key',
  'unsafe',
].map((name) => `test/contract/${name}.test.ts`);

/**
 * Files that also run beside the full tier, with Valkey 9 for every Redis: the core of the locks and strategies with scripts, or with WAIT.
 * The locks `redis`, `redis-fair` and `redis-read-write` and the strategies run there as a user with few permissions. `redis-cas` always
 * runs on Valkey.
 */
export const ON_VALKEY = ['lock-redis-semaphore', 'lock-redis-wait', 'redis-acl'].map(
  (name) => `test/contract/${name}.test.ts`,
);
