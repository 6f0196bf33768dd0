/** Workers in one process: every task is done, and none twice, whatever fails, stops, is lost or comes too late. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { TcpProxy } from '../../lab/proxy.ts';
import type { TaskHandler } from '../../src/tasks/handlers.ts';
import {
  age,
  claimByThree,
  openLedger,
  openProcess,
  type Process,
  patient,
  statesOf,
  timesHandled,
  writeTasks,
} from '../support/outbox.ts';
import { openTestStores, type TestStores } from '../support/stores.ts';

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

function open(databaseUrl = stores.databaseUrl): Process {
  const process = openProcess(databaseUrl);
  processes.push(process);
  return process;
}

/** Waits for less time than tasks take to be reclaimed. */
const until = (state: string, count: number) =>
  expect.poll(() => statesOf(stores)).toHaveProperty(state, count);

function gate() {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { open, opened };
}

describe('what a worker claims', () => {
  it('no task that another has claimed', () => claimByThree(stores, handler, open));

  it('the longest due tasks, new ones and retries alike', async () => {
    const ids = await writeTasks(stores, 6);
    await stores.sql.query(
      `UPDATE tasks SET run_at = now() - id * interval '1 second', state = CASE id % 2 WHEN 0 THEN 'retry' ELSE state END`,
    );
    const { table } = open();
    for (let n = 0; n < 2; n++) {
      const claimed = await table.claimDue(3);
      expect(claimed.map(({ id }) => id).sort()).toEqual(ids.splice(-3));
    }
    expect(await table.claimDue(3)).toEqual([]);
  });

  it('no more than it can start: the rest is for others', async () => {
    await writeTasks(stores, 10);
    open().start(() => new Promise(() => {}), { concurrency: 3, stopMs: 1, ...patient });
    const states = (expected: object) => expect.poll(() => statesOf(stores)).toEqual(expected);
    await states({ processing: 3, waiting: 7 });
    open().start(handler);
    await states({ processing: 3, done: 7 });
  });
});

describe('a lost task', () => {
  it('that an earlier version queued', async () => {
    const [first, second] = await writeTasks(stores, 3);
    const queue = `UPDATE tasks SET state = 'queued', updated_at = now() WHERE id IN ($1, $2)`;
    await stores.sql.query(queue, [first, second]);
    open().start(handler);
    await until('done', 1);
    expect(await statesOf(stores)).toEqual({ done: 1, queued: 2 }); // the earlier version may yet claim them
    await age(stores, 'queued');
    await until('done', 3);
    expect(await timesHandled(stores)).toEqual({ 1: 3 });
  });

  it('a task whose claim was committed and not answered', async () => {
    const [id] = await writeTasks(stores, 1);
    const process = open();
    let isLost = false;
    process.start(handler, {}, async (max) => {
      const claim = await process.table.claimDue(max);
      if (isLost || claim.length === 0) return claim;
      isLost = true;
      throw new Error('no answer');
    });
    await expect.poll(() => process.errors).toHaveLength(1);
    expect(await statesOf(stores)).toEqual({ processing: 1 });
    await age(stores, 'processing');
    await until('done', 1);
    expect(await process.table.get(id!)).toMatchObject({ attempts: 2 });
    expect(await timesHandled(stores)).toEqual({ 1: 1 });
  });

  it('an attempt that resumes after being declared dead marks nothing', async () => {
    const [id] = await writeTasks(stores, 1);
    const sleeper = open();
    const { open: wakeUp, opened: asleep } = gate();
    let sleeping = false;
    const sleepy = async () => {
      sleeping = true;
      await asleep;
      throw new Error('too late');
    };
    sleeper.start(sleepy, { concurrency: 1 }); // it claims no other task, nor this one again
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

  it('is dead when the worker died on the last attempt', async () => {
    const [id] = await writeTasks(stores, 1);
    const { table } = open();
    for (let attempt = 1; attempt <= 2; attempt++) {
      await table.claimDue(1);
      expect(await table.reclaimProcessing(60_000, 10, 2)).toBe(0);
      expect(await table.reclaimProcessing(-60_000, 10, 2)).toBe(1);
    }
    const dead = { state: 'dead', attempts: 2, lastError: 'attempt 2: its worker died' };
    expect(await table.get(id!)).toMatchObject(dead);
  });
});

describe('a handler that fails', () => {
  it('retries with doubling pauses, until the task is dead with its error', async () => {
    const [id] = await writeTasks(stores, 1);
    const process = open();
    process.start(
      async (task, signal) => {
        await handler(task, signal);
        throw new Error(`no\0 luck ${task.attempts} ${'.'.repeat(5_000)}`, { cause: { code: 'EWHY' } });
      },
      { pollMs: 10, attempts: 4, backoffMs: 200, maxBackoffMs: 400 },
    );
    await until('dead', 1);
    const task = (await process.table.get(id!))!;
    expect(task).toMatchObject({ state: 'dead', attempts: 4 });
    expect(task.lastError).toMatch(/^attempt 4: no luck 4 \.+$/);
    expect(task.lastError!.length).toBe(1_000);
    // By the database's clock: each pause has at least three quarters of its nominal length.
    const { rows } = await stores.sql.query<{ ms: string | null }>(
      'SELECT extract(epoch FROM at - lag(at) OVER (ORDER BY at)) * 1000 AS ms FROM handled ORDER BY at',
    );
    const pauses = rows.slice(1).map(({ ms }) => Number(ms));
    for (const [i, least] of [150, 300, 300].entries()) expect(pauses[i]).toBeGreaterThanOrEqual(least);
    expect(pauses).toHaveLength(3);
  });

  it('is logged as a failed attempt with its task, and repetitions are only counted', async () => {
    const { log, start } = open();
    const [first] = await writeTasks(stores, 3);
    start(
      async () => {
        throw new Error('away');
      },
      { concurrency: 1 },
    );
    await until('retry', 3);
    const failed = log.filter(
      (line) => line.startsWith('Attempt at a task failed') && !line.includes('"repeated":'),
    );
    expect(failed).toEqual([
      expect.stringMatching(`"err":"away",.*"taskId":${first},"key":"ship:.*"attempts":1`),
    ]);
  });

  it('begins a new round of attempts when an operator retries the task', async () => {
    const [id] = await writeTasks(stores, 1);
    const process = open();
    const { open: goOn, opened: refused } = gate();
    const failing: TaskHandler = async ({ attempts }) => {
      if (attempts > 2) await refused; // else the task could be dead before the second retry
      throw new Error('still not');
    };
    process.start(failing, { attempts: 2, backoffMs: 1, maxBackoffMs: 1 });
    await until('dead', 1);
    expect(await process.table.revive(id!)).toMatchObject({ state: 'waiting', attempts: 2 });
    expect(await process.table.revive(id!)).toBeNull();
    goOn();
    await until('dead', 1);
    expect(await process.table.get(id!)).toMatchObject({ attempts: 4, lastError: 'attempt 4: still not' });
  });

  it('has a time limit, at which its signal fires', async () => {
    const [id] = await writeTasks(stores, 1);
    const process = open();
    const reasons: unknown[] = [];
    let calls = 0;
    process.start(
      (task, signal) => {
        signal.addEventListener('abort', () => reasons.push(signal.reason));
        // The first call ignores its signal.
        return ++calls === 1 ? new Promise(() => {}) : handler(task, signal);
      },
      { handlerMs: 1_000, backoffMs: 1 },
    );
    await until('done', 1);
    expect(String(reasons[0])).toContain('not done within 1000 ms');
    expect((await process.table.get(id!))!.lastError).toMatch(/attempt \d: not done within 1000 ms/);
  });
});

describe('a stop', () => {
  it('finishes the task in progress', async () => {
    const [id] = await writeTasks(stores, 1);
    const process = open();
    const begun = gate();
    const slow: TaskHandler = async (task, signal) => {
      begun.open();
      await sleep(300);
      await handler(task, signal);
    };
    const worker = process.start(slow, { stopMs: 60_000 });
    await begun.opened;
    await worker.stop();
    expect(await process.table.get(id!)).toMatchObject({ state: 'done', attempts: 1 });
  });

  it('releases unfinished tasks to another worker', async () => {
    const [id] = await writeTasks(stores, 1);
    const begun = gate();
    const endless: TaskHandler = () => {
      begun.open();
      return new Promise(() => {});
    };
    const worker = open().start(endless, { stopMs: 100, attempts: 1 });
    await begun.opened;
    await worker.stop();
    const other = open();
    const lastError = 'attempt 1: the worker stopped';
    await expect.poll(() => other.table.get(id!)).toMatchObject({ lastError });
    other.start(handler);
    await until('done', 1);
    expect(await timesHandled(stores)).toEqual({ 1: 1 });
  });
});

it('tasks whose claim Postgres rejects do not stop others that are due after them', async () => {
  await writeTasks(stores, 48, 'rejected');
  await writeTasks(stores, 20);
  await stores.sql.query(`
    CREATE FUNCTION reject() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN RAISE EXCEPTION 'not this task' USING ERRCODE = '55000'; END $$;
    CREATE TRIGGER reject BEFORE UPDATE ON tasks FOR EACH ROW WHEN (NEW.kind = 'rejected') EXECUTE FUNCTION reject()`);
  open().start(handler, { pollMs: 1_000 });
  await until('done', 20);
  expect(await statesOf(stores)).toEqual({ done: 20, waiting: 48 });
});

describe('an outage', () => {
  it('of Postgres: due tasks are claimed, and finished tasks are marked, when it is back', async () => {
    await using link = await TcpProxy.open({ port: Number(new URL(stores.databaseUrl).port) });
    const behind = open(link.through(stores.databaseUrl));
    const handled: number[] = [];
    const { open: allow, opened: allowed } = gate();
    behind.start(async ({ id }) => {
      handled.push(id);
      await allowed;
    });
    const [first] = await writeTasks(stores, 1);
    await expect.poll(() => handled).toHaveLength(1);
    link.set('refuse');
    // A claim that was on its way has ended.
    const connections = `SELECT FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'stampede'`;
    await expect.poll(() => stores.sql.query(connections)).toMatchObject({ rowCount: 0 });
    allow(); // done outside, but cannot be marked
    await writeTasks(stores, 1); // cannot be claimed
    // An outage may begin with one error and continue with another; each is logged once.
    for (const step of ['claim tasks', 'record task results', 'reclaim tasks'])
      await expect.poll(() => behind.errors).toContainEqual(expect.stringMatching(`^${step}`));
    const errors = [...behind.errors];
    expect(errors).toEqual([...new Set(errors)]);
    expect(await statesOf(stores)).toEqual({ processing: 1, waiting: 1 });
    link.set('pass');
    await until('done', 2);
    expect(handled).toEqual([first, first! + 1]);
    const { rows } = await stores.sql.query('SELECT DISTINCT attempts, last_error AS error FROM tasks');
    expect(rows).toEqual([{ attempts: 1, error: null }]);
  });
});
