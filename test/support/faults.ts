/** The faults of seeded runs by name. Each strikes one of two services, or a store of both, and ends by itself. */
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { type Random, seededRandom } from '../../lab/kit/random.ts';
import type { PostgresPair } from '../../lab/servers/postgres-pair.ts';
import { strategies } from '../../src/strategies/registry.ts';
import type { Service } from './killable-service.ts';
import {
  delayRequest,
  freeze,
  freezeBackend,
  stall,
  terminateBackends,
  whileCommitsWait,
} from './nemesis.ts';
import type { OwnStores } from './stores.ts';
import type { TestSale } from './world.ts';

export const SAFE_STRATEGIES = [...strategies]
  .filter(([, { description }]) => description.guarantees.neverOversells)
  .map(([name]) => name);

interface Struck {
  readonly sale: TestSale;
  readonly service: Service;
  readonly stores: OwnStores;
  readonly random: Random;
  readonly forMs: number;
}

/** The statement that is delayed: the one that places orders, or otherwise any commit. */
const MARKERS: Record<string, string> = {
  lua: 'commit-orders',
  'global-lock': 'commit-orders',
  'segmented-lock': 'commit-orders',
  'conditional-update': 'sell-if-free',
  optimistic: 'sell-if-unchanged',
  'skip-locked': 'take-unit',
  'group-commit': 'place-batch',
};
/** An order id as an argument of a command. */
const ORDER_ID = '\r\n$36\r\n';

const FAULTS = {
  'delay-statement': ({ sale, service, forMs, random }) =>
    delayRequest(service.links.postgres, MARKERS[sale.world.strategy] ?? 'COMMIT', forMs, random() < 0.3),
  'delay-command': ({ service, forMs, random }) =>
    delayRequest(service.links.redis, ORDER_ID, forMs, random() < 0.7),
  'stall-postgres': ({ service, forMs }) => stall(service.links.postgres, forMs),
  'stall-redis': ({ service, forMs }) => stall(service.links.redis, forMs),
  'cut-postgres': async ({ service }) => service.links.postgres.cutClients(),
  'cut-redis': async ({ service }) => service.links.redis.cutClients(),
  'freeze-backend': ({ stores, forMs }) => freezeBackend(stores.sql, forMs),
  'freeze-service': ({ service, forMs }) => freeze(service.pid, forMs),
  'freeze-redis': ({ stores, forMs }) => freeze(stores.redisServer.pid, forMs / 2),
  'lock-row': ({ sale, stores }) => whileCommitsWait(stores.sql, sale.id, () => sleep(2_600)).catch(() => {}),
  'terminate-backends': ({ stores }) => terminateBackends(stores.sql),
  'restart-postgres': ({ stores }) => stores.postgresServer.restart(500),
} as const satisfies Record<string, (struck: Struck) => Promise<unknown>>;

type Fault = keyof typeof FAULTS;

/** Weights of the draw: the faults that once made an answer false are drawn more often. */
const WEIGHTS: Partial<Record<Fault, number>> = {
  'delay-statement': 4,
  'delay-command': 2,
  'freeze-backend': 2,
  'lock-row': 2,
};
const DRAWN = (Object.keys(FAULTS) as Fault[]).flatMap((fault) =>
  Array.from({ length: WEIGHTS[fault] ?? 1 }, () => fault),
);

/** Draws faults for a seed. @returns their names, and a function that strikes with all within `ms` */
export function drawFaults(seed: number, howMany: number) {
  const random = seededRandom(seed);
  const names = Array.from({ length: howMany }, () => DRAWN[Math.floor(random() * DRAWN.length)]!);
  const strike = (sale: TestSale, stores: OwnStores, ms: number) =>
    Promise.all(
      names.map(async (name, i) => {
        const own = seededRandom(seed * 1_000 + i);
        await sleep(own() * ms);
        const service = sale.world.services[own() < 0.5 ? 0 : 1]!;
        await FAULTS[name]({ sale, service, stores, random: own, forMs: 3_000 + own() * 5_000 });
      }),
    );
  return { names, strike };
}

const WAITING = `wait_event = 'SyncRep'`;

/** How the wait of a commit for the synchronous standby can end although the standby lacks the commit. */
export const BREAKS = {
  cancel: (sql: pg.Pool) => sql.query(`SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE ${WAITING}`),
  terminate: (sql: pg.Pool) =>
    sql.query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE ${WAITING}`),
  /** The server recovers by itself, and then shows all that it had committed. */
  async crash(sql: pg.Pool) {
    const { rows } = await sql.query<{ pid: number }>(`SELECT pid FROM pg_stat_activity WHERE ${WAITING}`);
    process.kill(rows[0]!.pid, 'SIGKILL');
  },
} as const;
/** Ends every wait for the standby until `isOver`. */
export async function breakWaits(
  pair: PostgresPair,
  how: keyof typeof BREAKS,
  isOver: () => boolean,
): Promise<void> {
  while (!isOver()) {
    const { rows } = await pair
      .sql()
      .query(`SELECT FROM pg_stat_activity WHERE ${WAITING}`)
      .catch(() => ({ rows: [] }));
    if (rows.length > 0) await BREAKS[how](pair.sql()).catch(() => {});
    await sleep(50);
  }
}
