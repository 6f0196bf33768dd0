/** One server of Redis: the only one or, of a cluster, one of the masters. */
import type { Redis } from 'ioredis';
import type { Replication } from '../../locks/kit/replication.ts';
import { type StoreClock, storeClock } from '../late-requests.ts';
import { waitingFor } from './replication.ts';

export interface RedisServer {
  /** Distinguishes the servers in this process. */
  readonly id: number;
  /** For commands that name no key. */
  readonly redis: Redis;
  readonly clock: StoreClock;
  /** Null: nothing waits for replicas. */
  readonly replication: Replication | null;
  /** How often its connection was lost. Afterwards another server may answer, with another clock and other data. */
  readonly connections: number;
  /** Counts as a lost connection: its slots were on another server meanwhile, so it has other data. */
  lost(): void;
}

let lastId = 0;

/** @param replicas that must have a reservation before it counts: see `REDIS_WAIT` */
export function redisServer(redis: Redis, replicas: number): RedisServer {
  const clock = storeClock(async () => {
    const [seconds, micros] = await redis.time();
    return Number(seconds) * 1_000 + Number(micros) / 1_000;
  });
  const lost = () => {
    server.connections++;
    clock.invalidate();
  };
  redis.on('close', lost);
  const replication = replicas > 0 ? waitingFor(redis, replicas) : null;
  const server = { id: ++lastId, redis, clock, lost, replication, connections: 0 };
  return server;
}

/** A server that has sales. */
export interface StoreServer {
  readonly redis: Redis;
  readonly name: string;
  /** A key on this server that no sale has. */
  readonly key: string;
  /** In a cluster, what is unavailable without this server. */
  readonly part?: string;
  /** @throws when it serves no sale now */
  check(): Promise<unknown>;
}
