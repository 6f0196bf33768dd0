/** Groups of Redis servers that fail over by themselves, for the lab. */

import { type LabOptions, type LabServers, lacking } from './lab-servers.ts';
import { openLinkedCluster } from './linked-cluster.ts';
import { durableArgs } from './redis.ts';
import { DOWN_AFTER_MS, NEVER_MS, openSentinels } from './sentinels.ts';

/** A primary with replicas, and three Sentinels, which promote when the lab cuts the primary off, and not when the machine is slow. */
export async function openSentinelRedis({
  replicas = 1,
  durable = false,
  program,
}: LabOptions): Promise<LabServers> {
  const group = await openSentinels({
    replicas: Math.max(1, replicas),
    downAfterMs: NEVER_MS,
    ...(durable && { args: durableArgs }),
    ...(program && { program }),
  });
  const first = group.servers[0]!;
  const urls = ([port]: readonly number[]) => ({ redisUrl: `redis://127.0.0.1:${port}` });
  return {
    ...lacking.group,
    nodes: [
      {
        ...lacking.node,
        port: first.port,
        kill: () => first.kill(),
        start: () => group.restart(first),
      },
    ],
    urls,
    groupUrls: { redisUrl: group.url },
    currentUrls: async () => urls([(await group.primary()).port]),
    stopReplication: () => group.cutReplication(),
    async cutOff() {
      await group.setDownAfter(DOWN_AFTER_MS);
      group.cut(first);
    },
    rejoin: async () => group.heal(first),
    async promoted() {
      await group.untilPromoted(first);
      await group.setDownAfter(NEVER_MS);
      return (await group.primary()).port;
    },
    [Symbol.asyncDispose]: () => group[Symbol.asyncDispose](),
  };
}

/** Hash tag of the first sale of a database. */
const SALE = '{sale:1}';

/** Three masters, each with a replica. Node 0 is the master that has the sale. */
export async function openClusterRedis(): Promise<LabServers> {
  const cluster = await openLinkedCluster();
  let untilPromoted: (() => Promise<unknown>) | undefined;
  return {
    ...lacking.group,
    nodes: [{ ...lacking.node, port: cluster.port }],
    urls: () => ({ redisUrl: cluster.url }),
    groupUrls: { redisUrl: cluster.url },
    ways: cluster,
    currentUrls: async () => ({ redisUrl: cluster.url }),
    stopReplication: async () => {}, // a master that is cut off replicates nothing
    async cutOff() {
      untilPromoted = await cluster.cutOff(SALE);
    },
    rejoin: () => cluster.rejoin(),
    async promoted() {
      await untilPromoted?.();
      return cluster.port;
    },
    [Symbol.asyncDispose]: () => cluster[Symbol.asyncDispose](),
  };
}
