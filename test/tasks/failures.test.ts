/** A failing task is retried after growing pauses, and ends as dead with its error; store outages only delay it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { TcpProxy } from '../../lab/proxy.ts';
import type { TaskHandler } from '../../src/tasks/handlers.ts';
import {
  openLedger,
  openProcess,
  type Process,
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
    const metrics = await process.instruments.registry.metrics();
    expect(metrics).toContain('stampede_task_duration_seconds_count{kind="ship",result="retry"} 3');
    expect(metrics).toContain('stampede_task_duration_seconds_count{kind="ship",result="dead"} 1');
    expect(process.log.join()).toContain('Task is dead');
  });

  it('begins a new round of attempts when an operator retries the task', async () => {
    const [id] = await writeTasks(stores, 1);
    const process = open();
    let goOn = () => {};
    const refused = new Promise<void>((resolve) => {
      goOn = resolve;
    });
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

  it('is dead at once if no handler exists for its kind', async () => {
    const [id] = await writeTasks(stores, 1, 'unheard-of');
    const process = open();
    process.start(handler);
    await until('dead', 1);
    expect(await process.table.get(id!)).toMatchObject({
      attempts: 1,
      lastError: 'attempt 1: no handler for the kind unheard-of',
    });
  });

  it('does not delay other tasks', async () => {
    await writeTasks(stores, 100);
    const process = open();
    process.start(
      async (task, signal) => {
        if (task.attempts === 1 && task.id % 3 === 0) throw new Error('the first time');
        await handler(task, signal);
      },
      { backoffMs: 20 },
    );
    await until('done', 100);
    expect(await timesHandled(stores)).toEqual({ 1: 100 });
  });

  it('leaves its task dead when the worker died on the last attempt', async () => {
    const [id] = await writeTasks(stores, 1);
    const { table } = open();
    for (let attempt = 1; attempt <= 2; attempt++) {
      await table.claimDue(1, 'skip');
      expect(await table.reclaimProcessing(60_000, 10, 2)).toBe(0);
      expect(await table.reclaimProcessing(-60_000, 10, 2)).toBe(1);
    }
    expect(await table.get(id!)).toMatchObject({
      state: 'dead',
      attempts: 2,
      lastError: 'attempt 2: its worker died',
    });
  });
});

describe('a stop', () => {
  it('finishes the task in progress', async () => {
    const [id] = await writeTasks(stores, 1);
    const process = open();
    let begun = () => {};
    const started = new Promise<void>((resolve) => {
      begun = resolve;
    });
    const slow: TaskHandler = async (task, signal) => {
      begun();
      await sleep(300);
      await handler(task, signal);
    };
    const worker = process.start(slow, { stopMs: 60_000 });
    await started;
    await worker.stop();
    expect(await process.table.get(id!)).toMatchObject({ state: 'done', attempts: 1 });
  });

  it('releases unfinished tasks to another worker', async () => {
    const [id] = await writeTasks(stores, 1);
    const process = open();
    let begun = () => {};
    const started = new Promise<void>((resolve) => {
      begun = resolve;
    });
    const worker = process.start(
      () => {
        begun();
        return new Promise(() => {});
      },
      { stopMs: 100, attempts: 1 },
    );
    await started;
    await worker.stop();
    const other = open();
    const lastError = 'attempt 1: the worker stopped';
    await expect.poll(() => other.table.get(id!)).toMatchObject({ lastError });
    other.start(handler);
    await until('done', 1);
    expect(await timesHandled(stores)).toEqual({ 1: 1 });
  });

  it('releases a task whose claim is answered too late', async () => {
    const [id] = await writeTasks(stores, 1);
    const process = open();
    let answer = () => {};
    const answered = new Promise<void>((resolve) => {
      answer = resolve;
    });
    const worker = process.start(handler, { stopMs: 1 }, async (max) => {
      const claim = await process.table.claimDue(max, 'skip');
      await answered;
      return claim;
    });
    await until('processing', 1);
    await worker.stop();
    answer();
    await until('retry', 1);
    expect(await process.table.get(id!)).toMatchObject({ lastError: 'attempt 1: the worker stopped' });
    expect(await timesHandled(stores)).toEqual({ 0: 1 });
  });

  it('leaves no task in progress', async () => {
    await writeTasks(stores, 300);
    const process = open();
    const workers = Array.from({ length: 3 }, () => process.start(handler, { stopMs: 60_000 }));
    await expect.poll(async () => (await statesOf(stores)).done, { interval: 25 }).toBeGreaterThan(50);
    await Promise.all(workers.map((worker) => worker.stop()));
    const { done = 0, waiting = 0 } = await statesOf(stores);
    expect(done + waiting).toBe(300);
    expect(await timesHandled(stores)).toEqual({ 1: done, ...(waiting > 0 && { 0: waiting }) });
  });
});

describe('tasks whose claim Postgres rejects', () => {
  it('do not stop others that are due after them', async () => {
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
});

describe('an outage', () => {
  it('of Postgres: due tasks are claimed, and finished tasks are marked, when it is back', async () => {
    await using link = await TcpProxy.open({ port: Number(new URL(stores.databaseUrl).port) });
    const behind = open(link.through(stores.databaseUrl));
    const handled: number[] = [];
    let allow = () => {};
    const allowed = new Promise<void>((resolve) => {
      allow = resolve;
    });
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
