/** Every task is done, and none twice: with several dispatchers and workers, and whatever is lost or repeated. */
import { Redis } from 'ioredis';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { limits } from '../../src/config/limits.ts';
import type { Lock } from '../../src/locks/lock.ts';
import { create as createRedisLock } from '../../src/locks/rungs/redis.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import type { TaskHandler } from '../../src/tasks/handlers.ts';
import { STREAM } from '../../src/tasks/queue.ts';
import { type SelectDue, skipLocked, underLock } from '../../src/tasks/select-due.ts';
import { eventually } from '../support/client.ts';
import {
  age,
  openLedger,
  openProcess,
  type Process,
  statesOf,
  timesHandled,
  writeTasks,
} from '../support/outbox.ts';
import { openStoresWithRedis, type StoresWithRedis } from '../support/stores.ts';

const TASKS = 500;

let stores: StoresWithRedis;
let redis: Redis;
let handler: TaskHandler;
const processes: Process[] = [];

beforeEach(async () => {
  stores = await openStoresWithRedis();
  redis = new Redis(stores.redisUrl);
  handler = await openLedger(stores);
});

afterEach(async () => {
  await Promise.all(processes.splice(0).map((process) => process.close()));
  redis.disconnect();
  await stores[Symbol.asyncDispose]();
});

async function open(urls = {}): Promise<Process> {
  const process = await openProcess({ ...stores, ...urls });
  processes.push(process);
  return process;
}

/** Waits until all tasks are done. */
const allDone = (count: number) =>
  eventually(
    () => statesOf(stores),
    (states) => states.done === count,
    50_000,
  );

/** A lock that fails: everybody holds it, always. */
const noLock: Lock = {
  name: 'none',
  async acquire(resource) {
    const lease = { resource, token: '', fencingToken: null, signal: new AbortController().signal };
    const release = async () => true;
    return {
      kind: 'held',
      lease: { ...lease, deadlineMs: Infinity, release, [Symbol.asyncDispose]: async () => {} },
    };
  },
  async close() {},
};

/** A machine that freezes for a while has lost nothing: no worker is given up here. */
const patient = { queuedMs: 300_000, processingMs: 300_000, handlerMs: 240_000 };

describe('three dispatchers, three workers', () => {
  async function run(pickOf: (process: Process) => SelectDue): Promise<void> {
    const ids = await writeTasks(stores, TASKS);
    const picked: string[] = [];
    const workers = new Set<Process>();
    const three = [await open(), await open(), await open()];
    for (const process of three) {
      const selectDue = pickOf(process);
      process.dispatcher({
        bounds: { ...patient, batch: 20 },
        selectDue: async (most) => {
          const marked = await selectDue(most);
          picked.push(...marked);
          return marked;
        },
      });
      process.worker(async (task, signal) => {
        await handler(task, signal);
        workers.add(process);
      }, patient);
    }
    await allDone(TASKS);
    const again = 'SELECT id, attempts, last_error FROM tasks WHERE attempts <> 1 OR last_error IS NOT NULL';
    expect((await stores.sql.query(again)).rows).toEqual([]);
    // Twice only what its dispatcher gave back, where Redis did not answer in time.
    const givenBack = three.reduce((sum, process) => sum + process.givenBack(), 0);
    expect(picked, three.flatMap(({ errors }) => errors).join()).toHaveLength(TASKS + givenBack);
    expect([...new Set(picked.map(Number))].sort((a, b) => a - b)).toEqual(ids);
    expect(await timesHandled(stores)).toEqual({ 1: TASKS });
    expect(await redis.xlen(STREAM)).toBe(0);
    expect(workers.size).toBeGreaterThan(1);
  }

  it('skip-locked: each task is picked, enqueued and handled once', async () => {
    await run(({ table }) => skipLocked(table));
  });

  it('lock: the same, one dispatcher at a time', async () => {
    const store = await openRedis(stores.redisUrl, () => {});
    const lock = await createRedisLock({ redis: store });
    await run(({ table }) => underLock(table, lock, { lockTtlMs: 10_000, lockWaitMs: 500 }));
    await lock.close();
    await store.close();
  });

  it('lock: the same when the lock fails', async () => {
    await run(({ table }) => underLock(table, noLock, { lockTtlMs: 10_000, lockWaitMs: 500 }));
  });
});

describe('lost tasks are recovered', () => {
  it('a task that was marked and never enqueued', async () => {
    await writeTasks(stores, 3);
    const process = await open();
    await process.table.queueDue(2, 'skip'); // and then its dispatcher dies
    process.dispatcher();
    process.worker(handler);
    await eventually(
      () => statesOf(stores),
      (states) => states.done === 1,
    );
    expect(await statesOf(stores)).toEqual({ done: 1, queued: 2 }); // it may yet come
    await age(stores, 'queued');
    await allDone(3);
    expect(await timesHandled(stores)).toEqual({ 1: 3 });
  });

  it('the whole stream: FLUSHALL while tasks are queued, read and processed', async () => {
    await writeTasks(stores, TASKS);
    for (let i = 0; i < 2; i++) {
      const process = await open();
      process.dispatcher({ bounds: { batch: 50, queue: 200 } });
      process.worker(handler);
    }
    for (const part of [0.2, 0.5]) {
      await eventually(
        () => statesOf(stores),
        ({ done = 0 }) => done > part * TASKS,
      );
      await redis.flushall();
    }
    // All that is queued seems lost now, also what was enqueued after it: that comes twice.
    await eventually(
      async () => {
        await age(stores, 'queued');
        return statesOf(stores);
      },
      ({ done }) => done === TASKS,
      50_000,
    );
    expect(await timesHandled(stores)).toEqual({ 1: TASKS });
  });

  it('old entries of readers that died before deleting them', async () => {
    const longAgo = Date.now() - 3_600_000;
    await redis.xadd(STREAM, `${longAgo}-0`, 'id', '1');
    const { queue } = await open();
    await queue.trim(60_000);
    expect(await queue.length()).toBe(0);
    await queue.enqueue(['2']);
    await queue.trim(60_000);
    expect(await queue.length()).toBe(1);
  });
});

describe('duplicates run once', () => {
  it('entries: repeated, of unknown tasks, and garbage', async () => {
    const ids = await writeTasks(stores, 50);
    const dispatching = await open();
    await dispatching.table.queueDue(100, 'skip');
    for (let i = 0; i < 4; i++) {
      for (const id of ids) await redis.xadd(STREAM, '*', 'id', id);
      for (const id of ['999999', '-1', '1e3', '99999999999999999999', ''])
        await redis.xadd(STREAM, '*', 'id', id);
      await redis.xadd(STREAM, '*', 'other', '1');
    }
    const workers = [await open(), await open()];
    for (const process of workers) process.worker(handler);
    await eventually(
      () => redis.xlen(STREAM),
      (length) => length === 0,
    );
    await allDone(50);
    expect(await timesHandled(stores)).toEqual({ 1: 50 });
    for (const { errors } of workers) expect(errors).toEqual([]);
    expect(await redis.xpending(STREAM, 'workers')).toEqual([0, null, null, null]);
    expect(await redis.xinfo('CONSUMERS', STREAM, 'workers')).toHaveLength(1);
  });

  it('tasks released after a Redis timeout that were enqueued after all', async () => {
    await writeTasks(stores, 50);
    const dispatching = await open();
    const stop = (signal: NodeJS.Signals) => process.kill(stores.redisServer.pid, signal);
    dispatching.dispatcher({
      bounds: { batch: 10 },
      selectDue: async (most) => {
        const marked = await dispatching.table.queueDue(most, 'skip');
        if (dispatching.givenBack() === 0) {
          stop('SIGSTOP');
          setTimeout(() => stop('SIGCONT'), limits.redisCommandMs + 500);
        }
        return marked;
      },
    });
    await eventually(
      async () => dispatching.givenBack(),
      (tasks) => tasks >= 10,
      30_000,
    );
    (await open()).worker(handler);
    await allDone(50);
    expect(await timesHandled(stores)).toEqual({ 1: 50 });
    await eventually(
      () => redis.xlen(STREAM),
      (length) => length === 0,
    );
  });

  it('an attempt that resumes after being declared dead marks nothing', async () => {
    const [id] = await writeTasks(stores, 1);
    const sleeper = await open();
    let wakeUp = () => {};
    const asleep = new Promise<void>((resolve) => {
      wakeUp = resolve;
    });
    let sleeping = false;
    sleeper.worker(async () => {
      sleeping = true;
      await asleep;
      throw new Error('too late');
    });
    const other = await open();
    other.dispatcher();
    await eventually(
      async () => sleeping,
      (yes) => yes,
    );
    await age(stores, 'processing');
    other.worker(handler);
    // The sleeper has free places, too: it may get the task again, and falls asleep over it for good.
    await eventually(
      async () => {
        const task = await other.table.get(id!);
        if (task!.state === 'processing') await age(stores, 'processing');
        return task!;
      },
      ({ state }) => state === 'done',
      30_000,
    );
    const done = await other.table.get(id!);
    wakeUp();
    await eventually(
      async () => sleeper.log.join('\n'),
      (log) => log.includes('after its task was reclaimed'),
    );
    expect(await other.table.get(id!)).toEqual(done);
    expect(done).toMatchObject({ state: 'done', lastError: expect.stringContaining('its worker died') });
    expect(await timesHandled(stores)).toEqual({ 1: 1 });
  });
});
