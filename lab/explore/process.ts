/** One process of the service in a schedule: a whole pipeline, whose requests go to virtual ports. */

import { type Config, parseEnv } from '../../src/config/env.ts';
import { limits } from '../../src/config/limits.ts';
import { runTasks } from '../../src/service/background.ts';
import {
  Closers,
  type Core,
  choices,
  composeCore,
  connectStores,
  createReports,
} from '../../src/service/core.ts';
import {
  createPipeline,
  failureOf,
  type Pass,
  type Pipeline,
  uncommittedOrders,
} from '../../src/service/pipeline.ts';
import { MAX_HOLD_S } from './extras.ts';

export const PAYMENT_WINDOW_S = 5;

/** What is explored. */
export interface Target {
  readonly strategy: string;
  readonly confirm: 'durable' | 'accepted';
  readonly lock: string;
}

export const usesRedis = ({ strategy }: Target): boolean =>
  !choices.withoutRedis.strategies.includes(strategy);

export interface ExploredProcess {
  /** `p1`, or `p1'` after it has died and was started again. */
  readonly name: string;
  /** Undefined while it starts. */
  parts?: Pick<Core, 'sales' | 'strategy'> & Pipeline;
  /** `frozen`: it does nothing until it goes on. */
  state: 'starting' | 'up' | 'frozen' | 'dead';
}

/** Virtual ports of a process. */
export const portsOf = (process: number) => ({ postgres: 10 + 2 * process, redis: 11 + 2 * process });

export interface ProcessOptions extends Target {
  /** Whether it delivers tasks, too. */
  readonly hasExtras?: boolean | undefined;
  readonly databaseUrl: URL;
  readonly ports: { readonly postgres: number; readonly redis: number };
  /** Whether it was started before. */
  readonly isAgain: boolean;
  /** Receives what a service would log as an unexpected error. */
  readonly onDefect: (error: unknown, doing: string) => void;
}

const LOG = { info() {}, warn() {}, error() {} } as unknown as Parameters<typeof createReports>[0];

/** Starts the parts of a process; its owner must be set. */
export async function startParts(options: ProcessOptions): Promise<NonNullable<ExploredProcess['parts']>> {
  const { databaseUrl, ports, onDefect } = options;
  const url = Object.assign(new URL(databaseUrl), { port: String(ports.postgres) }).href;
  const redisUrl = usesRedis(options) ? `redis://127.0.0.1:${ports.redis}` : null;
  const config = configOf(options, url, redisUrl);
  const reported = createReports(LOG);
  const reports = {
    ...reported,
    onError(operation: string, error: unknown) {
      // A plain error is a note, such as that too few replicas have a reservation.
      if (failureOf(error) === 'defect' && !(error instanceof Error && error.constructor === Error))
        onDefect(error, operation);
    },
  };
  const closers = new Closers();
  const stores = await connectStores(config, { databaseUrl: url, redisUrl }, reports, closers);
  const core = await composeCore(config, stores, reports, closers);
  const uncommitted = uncommittedOrders(core.strategy.mirror, core.orders);
  const pipeline = createPipeline({ config, core, reports, uncommitted, warn: () => {} });
  if (options.isAgain) await pipeline.recover(); // an empty database has nothing to recover
  const passes = options.hasExtras ? [...pipeline.passes, tasksPass(config, core)] : pipeline.passes;
  return { ...pipeline, passes, sales: core.sales, strategy: core.strategy };
}

/** A worker that claims once, and a pass of its reclaimer. It ends when its attempts do. */
function tasksPass(config: Config, core: Core): Pass {
  const run = () => runTasks({ config, core, reports: createReports(LOG), log: LOG }).stop();
  return { name: 'tasks', everyMs: limits.tasks.pollMs, run };
}

const configs = new Map<string, Config>();

/** Parsed once: it is the same in every schedule. */
function configOf(
  { strategy, confirm, lock, hasExtras }: ProcessOptions,
  url: string,
  redisUrl: string | null,
): Config {
  const env = {
    STRATEGY: strategy,
    CONFIRM: confirm,
    ...(redisUrl !== null && { LOCK: lock }),
    SEGMENTS: '2',
    DATABASE_URL: url,
    REDIS_URL: redisUrl ?? 'none',
    PAYMENT_WINDOW_S: String(PAYMENT_WINDOW_S),
    EVENTS: hasExtras ? 'sale.units-returned,order.offered' : 'sale.units-returned',
    EVENT_WEBHOOK_URL: 'http://127.0.0.1:9',
    ...(hasExtras && { TASK_WEBHOOK_URL: 'http://127.0.0.1:9', MAX_HOLD_S: String(MAX_HOLD_S) }),
  };
  const key = JSON.stringify(env);
  const config = configs.get(key) ?? parseEnv(env, choices);
  configs.set(key, config);
  return config;
}
