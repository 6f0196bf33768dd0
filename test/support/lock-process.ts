/** Locks without the service: one per simulated process, with separate connections through a proxy. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { ServerUrls } from '../../lab/clients/open-lock.ts';
import { type Link, TcpProxy } from '../../lab/proxy.ts';
import { startRedisServer } from '../../src/local/redis-server.ts';
import type { Lock } from '../../src/locks/lock.ts';
import { openRedis, type RedisStore } from '../../src/store/redis/connection.ts';

/** The servers of a lock in a child process. */
export interface LockServers extends ServerUrls {
  /** Also holds the counter, whichever server the lock uses. */
  readonly redisUrl: string;
}

/** From the server's view, a process. */
export interface LockProcess {
  readonly lock: Lock;
  /** Its connection to the lock's server. */
  readonly link: Link;
  /** Ends its connections as a crash does, without a release, then its timers. A second call has no effect. */
  close(): Promise<void>;
}

export interface LockFixture {
  readonly servers: LockServers;
  process(): Promise<LockProcess>;
  /** Deletes a lock at the server, as an operator would. For a lock without `expires-after-holder-death`. */
  evict?(resource: string): Promise<void>;
  close(): Promise<void>;
}

/**
 * A dedicated redis-server; each process reaches it through its own proxy.
 * @param program by default the one that is installed
 * @param loggedIn makes the URL with which the processes connect from that of the server; by default it is the same
 */
export async function redisLocks(
  create: (context: { readonly redis: RedisStore }) => Promise<Lock>,
  program?: string,
  loggedIn: (url: string) => Promise<string> = async (url) => url,
): Promise<LockFixture> {
  const folder = await mkdtemp(path.join(tmpdir(), 'stampede-test-lock-'));
  const server = await startRedisServer({
    folder,
    args: ['--appendonly', 'no'],
    ...(program && { program }),
  });
  const redisUrl = await loggedIn(server.url).catch(async (error) => {
    await server.kill();
    throw error;
  });
  const direct = await openRedis(server.url, () => {});
  return {
    servers: { redisUrl },
    async process() {
      const link = await TcpProxy.open({ port: server.port });
      const redis = await openRedis(link.through(redisUrl), () => {});
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
