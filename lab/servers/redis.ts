/** Redis for the lab: one server, a primary with replicas, or independent servers. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Redis } from 'ioredis';
import { ensureRedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import { clockIn, type LabOptions, type LabServers, lacking, type Node } from './lab-servers.ts';
import { withRedis } from './stores.ts';

/** No AOF, as Redis ships: no lock here waits for the disk. */
export const plainRedis = ['--appendonly', 'no'];
/** A primary that copies to a new replica at once. */
export const eagerPrimary = [...plainRedis, '--repl-diskless-sync-delay', '0'];

const replicasMs = 90_000;
/** A replica that gets the stream of writes acknowledges at once; one whose snapshot was just loaded does so once a second. */
const acknowledgeMs = 300;
const acknowledgements = 3;

/**
 * Waits until replicas acknowledge each write at once: an online replica may still miss the writes since its snapshot. A replica
 * that connected twice would count as two, and a majority of that count could exceed the real replicas.
 */
export async function untilReplicated(primary: Redis, replicas = 1): Promise<void> {
  const untilMs = performance.now() + replicasMs;
  for (let inARow = 0; inARow < acknowledgements; ) {
    if (performance.now() > untilMs) throw new Error('a Redis replica did not come online');
    await primary.set('in-step', 1);
    const count = await primary.wait(replicas, acknowledgeMs);
    const isConnected = (await primary.info('replication')).includes(`connected_slaves:${replicas}\r\n`);
    inARow = count >= replicas && isConnected ? inARow + 1 : 0;
  }
}

/** Arguments for a sale. */
export const durableArgs = ['--appendonly', 'yes'];

/** @param count of independent servers @returns also the URLs of all servers, replicas included */
export async function openRedis(
  count: number,
  { folder, clock: library, program: given, replicas: replicaCount = 0, durable = false }: LabOptions,
): Promise<LabServers & { readonly allUrls: readonly string[] }> {
  // Found once: the search blocks this process, and a restart happens under load.
  const program = given ?? (await ensureRedisServer()).path;
  const clock = (n: number) => clockIn(library, join(folder, `clock-${n}`));
  const start = async (n: number, port?: number, more: readonly string[] = []) => {
    const args = [...eagerPrimary, ...(durable ? durableArgs : []), ...more];
    const { environment } = clock(n);
    const options = { folder: join(folder, String(n)), args, environment, program };
    return startRedisServer(port === undefined ? options : { ...options, port });
  };
  const servers = await Promise.all(Array.from({ length: count }, (_, n) => start(n)));
  const nodes = servers.map((server, n): Node => {
    const { port } = server;
    return {
      ...lacking.node,
      port,
      save: () => withRedis(server.url, async (redis) => void (await redis.save())),
      kill: () => servers[n]!.kill(),
      async start(empty) {
        if (empty) await rm(join(folder, String(n)), { recursive: true, force: true });
        servers[n] = await start(n, port);
      },
      setMemory: (bytes) =>
        withRedis(server.url, async (redis) => void (await redis.config('SET', 'maxmemory', bytes))),
    };
  });
  const following = ['--replicaof', '127.0.0.1', String(nodes[0]!.port)];
  const replicas = await Promise.all(
    Array.from({ length: replicaCount }, (_, n) => start(count + n, undefined, following)),
  );
  if (replicaCount > 0) await withRedis(servers[0]!.url, (redis) => untilReplicated(redis, replicaCount));
  const urls = (ports: readonly number[]) => {
    const all = ports.map((port) => `redis://127.0.0.1:${port}`);
    return count > 1 ? { redlockUrls: all } : { redisUrl: all[0]! };
  };
  return {
    ...lacking.group,
    nodes,
    allUrls: [...servers, ...replicas].map(({ url }) => url),
    urls,
    currentUrls: async () => urls(nodes.map(({ port }) => port)),
    setClock: (node, aheadMs) => clock(node).set(aheadMs),
    async [Symbol.asyncDispose]() {
      await Promise.all([...servers, ...replicas].map((server) => server.kill()));
    },
  };
}
