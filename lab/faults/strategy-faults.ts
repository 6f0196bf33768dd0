/** The faults that strike a sale, in the order of the columns. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { StrategyFault } from './strategy-fault.ts';

/** Replication stops this long before the primary, in ms. */
const LAG_MS = { redis: 200, postgres: 500 };

export const strategyFaults: readonly StrategyFault[] = [
  {
    name: 'service-killed',
    title: 'service killed',
    happens: 'The only process of the service dies in the middle of its work, and starts again after 2 s.',
    strike: ({ service }) => service.kill(),
    heal: ({ service }) => service.start(),
  },
  {
    name: 'service-paused',
    title: 'service paused',
    happens:
      'The service is stopped for 2 s with requests in progress: a suspended machine, a throttled container.',
    strike: async ({ service }) => service.signal('SIGSTOP'),
    heal: async ({ service }) => service.signal('SIGCONT'),
  },
  {
    name: 'redis-killed',
    title: 'Redis killed',
    happens: 'Redis dies and is back after 2 s with its append-only file.',
    onOneRedis: true,
    strike: ({ redis }) => redis.kill(),
    heal: ({ redis }) => redis.start(false),
  },
  {
    name: 'redis-emptied',
    title: 'Redis back empty',
    happens: 'Redis dies and is back after 2 s without its data.',
    onOneRedis: true,
    strike: ({ redis }) => redis.kill(),
    heal: ({ redis }) => redis.start(true),
  },
  {
    name: 'redis-failed-over',
    title: 'Redis failed over',
    happens:
      'The primary of Redis is cut off, and Sentinel, or the cluster, promotes a replica that misses the last writes.',
    group: 'sentinels',
    async strike({ redis }) {
      await redis.stopReplication();
      await sleep(LAG_MS.redis);
      await redis.cutOff(0);
    },
    async heal({ redis }) {
      await redis.promoted();
      await redis.rejoin();
    },
  },
  {
    name: 'redis-silent',
    title: 'Redis silent',
    happens: 'The network to Redis loses every packet for 2 s, and no connection closes.',
    strike: async ({ links }) => links.redis.set('black-hole'),
    heal: async ({ links }) => links.redis.set('pass'),
  },
  {
    name: 'redis-full',
    title: 'Redis out of memory',
    happens: 'Redis has reached `maxmemory` with `noeviction` and refuses writes for 2 s.',
    onOneRedis: true,
    strike: ({ redis }) => redis.setMemory(1),
    heal: ({ redis }) => redis.setMemory(0),
  },
  {
    name: 'redis-clock',
    title: 'clock of Redis ahead',
    happens: 'The clock of Redis jumps a minute ahead, and back after 2 s.',
    onOneRedis: true,
    strike: ({ redis }) => redis.setClock(0, 60_000),
    heal: ({ redis }) => redis.setClock(0, 0),
  },
  {
    name: 'postgres-killed',
    title: 'Postgres killed',
    happens: 'Postgres dies with transactions in progress, and is back after 2 s and its crash recovery.',
    strike: ({ postgres }) => postgres.kill(),
    heal: ({ postgres }) => postgres.start(false),
  },
  {
    name: 'postgres-silent',
    title: 'Postgres silent',
    happens: 'The network to Postgres loses every packet for 2 s, and no connection closes.',
    strike: async ({ links }) => links.postgres.set('black-hole'),
    heal: async ({ links }) => links.postgres.set('pass'),
  },
  {
    name: 'postgres-promoted',
    title: 'standby promoted',
    happens:
      'Postgres replicates asynchronously. The primary dies half a second after the standby got its last commit, and the standby is promoted 2 s later.',
    group: 'standby',
    loses: true,
    async strike({ postgres }) {
      await postgres.stopReplication();
      await sleep(LAG_MS.postgres);
      await postgres.kill();
    },
    heal: async ({ postgres }) => void (await postgres.promoted()),
  },
  {
    name: 'postgres-sync-promoted',
    title: 'synchronous standby promoted',
    happens: 'The primary of Postgres dies, and its synchronous standby is promoted 2 s later.',
    group: 'synchronous-standby',
    strike: ({ postgres }) => postgres.kill(),
    heal: async ({ postgres }) => void (await postgres.promoted()),
  },
  {
    name: 'disk-full',
    title: 'Postgres out of disk',
    happens:
      'The disk of Postgres is full. First its tables cannot grow, and after a second its write-ahead log cannot, either, which ends it. Room is made 2 s later, and Postgres is started again.',
    smallDisk: true,
    strike: ({ postgres }) => postgres.setDisk(true),
    heal: ({ postgres }) => postgres.setDisk(false),
  },
  {
    name: 'postgres-clock',
    title: 'clock of Postgres ahead',
    happens: 'The clock of Postgres jumps a minute ahead, and back after 2 s.',
    strike: ({ postgres }) => postgres.setClock(0, 60_000),
    heal: ({ postgres }) => postgres.setClock(0, 0),
  },
  {
    name: 'both-killed',
    title: 'both stores killed',
    happens: 'Both stores die at once, as on one machine that loses power, and Redis comes back empty.',
    onOneRedis: true,
    async strike({ redis, postgres }) {
      await Promise.all([redis.kill(), postgres.kill()]);
    },
    async heal({ redis, postgres }) {
      await Promise.all([redis.start(true), postgres.start(false)]);
    },
  },
];
