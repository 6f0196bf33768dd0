/** Fixtures of the lock contract for servers other than Redis. The counter stays in Redis. */

import { TcpProxy } from '../../lab/proxy.ts';
import type { Lock } from '../../src/locks/lock.ts';
import { openPostgres, type PostgresStore } from '../../src/store/postgres/pool.ts';
import type { LockFixture } from './lock-process.ts';
import { openTestStores } from './stores.ts';
import { startZookeeper } from './zookeeper.ts';

/** A dedicated database; each process reaches it through its own proxy. */
export async function postgresLocks(
  create: (context: { readonly postgres: PostgresStore }) => Promise<Lock>,
): Promise<LockFixture> {
  const stores = await openTestStores();
  return {
    servers: { redisUrl: stores.redisUrl, databaseUrl: stores.databaseUrl },
    async process() {
      const link = await TcpProxy.open({ port: Number(new URL(stores.databaseUrl).port) });
      const postgres = openPostgres(link.through(stores.databaseUrl), () => {});
      const lock = await create({ postgres });
      return {
        lock,
        link,
        close: once(async () => {
          link.set('refuse');
          await lock.close();
          await postgres.close();
          await link.close();
        }),
      };
    },
    async close() {
      await stores[Symbol.asyncDispose]();
    },
  };
}

/** A dedicated ZooKeeper; each process reaches it through its own proxy. `lockTtlMs` is the session timeout. */
export async function zookeeperLocks(
  create: (context: { zookeeperUrl: string; lockTtlMs: number }) => Promise<Lock>,
  lockTtlMs = 1_200,
): Promise<LockFixture> {
  const stores = await openTestStores();
  const server = await startZookeeper();
  return {
    servers: { redisUrl: stores.redisUrl, zookeeperUrl: server.url },
    async process() {
      const link = await TcpProxy.open({ port: server.port });
      const lock = await create({ zookeeperUrl: `127.0.0.1:${link.port}`, lockTtlMs });
      return {
        lock,
        link,
        close: once(async () => {
          link.set('refuse');
          await lock.close();
          await link.close();
        }),
      };
    },
    async close() {
      await server[Symbol.asyncDispose]();
      await stores[Symbol.asyncDispose]();
    },
  };
}

function once(work: () => Promise<void>): () => Promise<void> {
  let done: Promise<void> | null = null;
  return () => {
    done ??= work();
    return done;
  };
}
