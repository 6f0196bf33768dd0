/** Every task is done, and none twice: with several workers, and whatever is lost or repeated. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Lock } from '../../src/locks/lock.ts';
import { create as createRedisLock } from '../../src/locks/redis.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { type ClaimDue, skipLocked, underLock } from '../../src/tasks/claim-due.ts';
import type { TaskHandler } from '../../src/tasks/handlers.ts';
import {
  age,
  openLedger,
  openProcess,
  type Process,
  statesOf,
  timesHandled,
  writeTasks,
} from '../support/outbox.ts';
import { openTestStores, type TestStores } from '../support/stores.ts';

const TASKS = 500;

let stores: TestStores;
let handler: TaskHandler;
const processes: Process[] = [];

beforeEach(async () => {
  stores = await openTestStores();
  handler = await openLedger(stores);
});

afterEach(async () => {
  await Promise.all(processes.splice(0).map((process) => process.close()));
  await stores[Symbol.asyncDispose]();
});

function open(): Process {
  const process = openProcess(stores.databaseUrl);
  processes.push(process);
  return process;
}

/** Waits until all tasks are done. */
const allDone = (count: number) => expect.poll(() => statesOf(stores)).toHaveProperty('done', count);

/** A lock that fails: everybody holds it, always. */
const noLock: Lock = {
  name: 'none',
  check: () => ({ ttlMs: 1, waitMs: 0 }),
  async acquire(resource) {
    const lease = { resource, token: '', fencingToken: null, signal: new AbortController().signal };
    const release = async () => 'released' as const;
    return {
      kind: 'held',
      lease: { ...lease, deadlineMs: Infinity, release, [Symbol.asyncDispose]: async () => {} },
    };
  },
  async close() {},
};

/** Long enough that a machine that freezes for a while does not lose its tasks. */
const patient = { processingMs: 300_000, handlerMs: 240_000 };

describe('three workers', () => {
  async function run(claimOf: (process: Process) => ClaimDue): Promise<void> {
    const ids = await writeTasks(stores, TASKS);
    const claimed: number[] = [];
    const workers = new Set<Process>();
    for (const process of [open(), open(), open()]) {
      const claimDue = claimOf(process);
      const handle: TaskHandler = async (task, signal) => {
        await handler(task, signal);
        workers.add(process);
      };
      process.start(handle, patient, async (max) => {
        const claim = await claimDue(max);
        claimed.push(...claim.map(({ id }) => id));
        return claim;
      });
    }
    await allDone(TASKS);
    const again = 'SELECT id, attempts, last_error FROM tasks WHERE attempts <> 1 OR last_error IS NOT NULL';
    expect((await stores.sql.query(again)).rows).toEqual([]);
    expect(claimed.sort((a, b) => a - b)).toEqual(ids);
    expect(await timesHandled(stores)).toEqual({ 1: TASKS });
    expect(workers.size).toBeGreaterThan(1);
  }

  it('skip-locked: each task is claimed and handled once', async () => {
    await run(({ table }) => skipLocked(table));
  });

  it('lock: the same, one claim at a time', async () => {
    const store = await openRedis(stores.redisUrl, () => {});
    const lock = await createRedisLock({ redis: store.locks });
    await run(({ table }) => underLock(table, lock, { lockTtlMs: 10_000, lockWaitMs: 500 }));
    await lock.close();
    await store.close();
  });

  it('lock: the same when the lock fails', async () => {
    await run(({ table }) => underLock(table, noLock, { lockTtlMs: 10_000, lockWaitMs: 500 }));
  });
});

describe('what a worker claims', () => {
  it('the longest due tasks, new ones and retries alike', async () => {
    const ids = await writeTasks(stores, 6);
    await stores.sql.query(
      `UPDATE tasks SET run_at = now() - id * interval '1 second', state = CASE id % 2 WHEN 0 THEN 'retry' ELSE state END`,
    );
    const { table } = open();
    for (const contended of ['skip', 'wait'] as const) {
      const claimed = await table.claimDue(3, contended);
      expect(claimed.map(({ id }) => id).sort()).toEqual(ids.splice(-3));
    }
    expect(await table.claimDue(3, 'skip')).toEqual([]);
  });

  it('no more than it can start: the rest is for others', async () => {
    await writeTasks(stores, 10);
    open().start(() => new Promise(() => {}), { concurrency: 3, stopMs: 1, ...patient });
    const states = (expected: object) => expect.poll(() => statesOf(stores)).toEqual(expected);
    await states({ processing: 3, waiting: 7 });
    open().start(handler);
    await states({ processing: 3, done: 7 });
  });

  it('at once when it is woken, also in the middle of a claim that finds nothing', async () => {
    const process = open();
    let claims = 0;
    const worker = process.start(handler, { pollMs: 600_000 }, async (max) => {
      const claim = await process.table.claimDue(max, 'skip');
      if (++claims > 1) return claim;
      await writeTasks(stores, 1);
      worker.wake();
      return claim;
    });
    await allDone(1);
    // The end of the task caused one more claim; now the worker waits.
    await expect.poll(() => claims).toBe(3);
    await writeTasks(stores, 1);
    worker.wake();
    await allDone(2);
  });
});

describe('lost tasks are recovered', () => {
  it('a task that an earlier version queued', async () => {
    const [first, second] = await writeTasks(stores, 3);
    const queue = `UPDATE tasks SET state = 'queued', updated_at = now() WHERE id IN ($1, $2)`;
    await stores.sql.query(queue, [first, second]);
    open().start(handler);
    await allDone(1);
    expect(await statesOf(stores)).toEqual({ done: 1, queued: 2 }); // the earlier version may yet claim them
    await age(stores, 'queued');
    await allDone(3);
    expect(await timesHandled(stores)).toEqual({ 1: 3 });
  });

  it('a task whose claim was committed and not answered', async () => {
    const [id] = await writeTasks(stores, 1);
    const process = open();
    let isLost = false;
    process.start(handler, {}, async (max) => {
      const claim = await process.table.claimDue(max, 'skip');
      if (isLost || claim.length === 0) return claim;
      isLost = true;
      throw new Error('no answer');
    });
    await expect.poll(() => process.errors).toHaveLength(1);
    expect(await statesOf(stores)).toEqual({ processing: 1 });
    await age(stores, 'processing');
    await allDone(1);
    expect(await process.table.get(id!)).toMatchObject({ attempts: 2 });
    expect(await timesHandled(stores)).toEqual({ 1: 1 });
  });
});

describe('duplicates run once', () => {
  it('an attempt that resumes after being declared dead marks nothing', async () => {
    const [id] = await writeTasks(stores, 1);
    const sleeper = open();
    let wakeUp = () => {};
    const asleep = new Promise<void>((resolve) => {
      wakeUp = resolve;
    });
    let sleeping = false;
    const sleep = async () => {
      sleeping = true;
      await asleep;
      throw new Error('too late');
    };
    sleeper.start(sleep, { concurrency: 1 }); // it claims no other task, nor this one again
    const other = open();
    await expect.poll(() => sleeping).toBe(true);
    await age(stores, 'processing');
    other.start(handler);
    await expect.poll(() => other.table.get(id!)).toMatchObject({ state: 'done' });
    const done = await other.table.get(id!);
    wakeUp();
    await expect.poll(() => sleeper.log.join('\n')).toContain('after its task was reclaimed');
    expect(await other.table.get(id!)).toEqual(done);
    expect(done).toMatchObject({ state: 'done', lastError: expect.stringContaining('its worker died') });
    expect(await timesHandled(stores)).toEqual({ 1: 1 });
  });
});
