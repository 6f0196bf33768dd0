/** Locks outside of the service: one for each process, with connections of its own, by way of a proxy. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { startRedisServer } from '../../src/local/redis-server.ts';
import type { Lock } from '../../src/locks/lock.ts';
import { locks } from '../../src/locks/registry.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { openRedis, type RedisStore } from '../../src/store/redis/connection.ts';
import { type Link, TcpProxy } from './proxy.ts';

/** What a lock in a child process is made from. */
export interface LockServers {
  /** Holds the counter too, whatever server the lock is in. */
  readonly redisUrl: string;
  readonly databaseUrl?: string;
  readonly redlockUrls?: readonly string[];
  readonly zookeeperUrl?: string;
}

/** A process, as far as the server can tell. */
export interface LockProcess {
  readonly lock: Lock;
  /** Its way to the lock's server. */
  readonly link: Link;
  /** Ends its connections, as a crash does: nothing is given back. Then ends timers. A second call does nothing. */
  close(): Promise<void>;
}

export interface LockFixture {
  readonly servers: LockServers;
  process(): Promise<LockProcess>;
  /** Deletes a lock at the server, as a person would who finds it dead. Needed where `expires` is not claimed. */
  evict?(resource: string): Promise<void>;
  close(): Promise<void>;
}

/** A redis-server of its own, and processes that reach it through a proxy each. */
export async function redisLocks(
  create: (context: { readonly redis: RedisStore }) => Promise<Lock>,
): Promise<LockFixture> {
  const folder = await mkdtemp(path.join(tmpdir(), 'stampede-test-lock-'));
  const server = await startRedisServer({ folder, args: ['--appendonly', 'no'] });
  const direct = await openRedis(server.url, () => {});
  return {
    servers: { redisUrl: server.url },
    async process() {
      const link = await TcpProxy.open({ port: server.port });
      const redis = await openRedis(link.through(server.url), () => {});
      const lock = await create({ redis });
      let open = true;
      return {
        lock,
        link,
        async close() {
          if (!open) return;
          open = false;
          await redis.close();
          await lock.close();
          await link.close();
        },
      };
    },
    async evict(resource) {
      await direct.redis.del(`stampede:{${resource}}:lock`);
    },
    async close() {
      await direct.close();
      await server.kill();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** A lock by its name, in a process of its own: it ends when `close` is done, or something was left. */
export async function openLock(
  name: string,
  servers: LockServers,
): Promise<{ readonly lock: Lock; readonly redis: RedisStore; close(): Promise<void> }> {
  const redis = await openRedis(servers.redisUrl, () => {});
  const postgres =
    servers.databaseUrl === undefined ? undefined : openPostgres(servers.databaseUrl, () => {});
  const module = locks.get(name) as unknown as { create(context: object): Promise<Lock> };
  const lock = await module.create({
    redis,
    postgres,
    lockTtlMs: 10_000,
    redlockUrls: servers.redlockUrls ?? [],
    zookeeperUrl: servers.zookeeperUrl ?? null,
    onError: () => {},
  });
  return {
    lock,
    redis,
    async close() {
      await lock.close();
      await redis.close();
      await postgres?.close();
    },
  };
}
