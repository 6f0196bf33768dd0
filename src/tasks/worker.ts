/**
 * The worker: from the stream into the outside. One in each process, with several tasks under way.
 *
 *   a place is free ──▶ read hints ──▶ claim ──not queued any more──▶ dropped: another has it, or had
 *                                        │ claimed, `attempts` + 1
 *                                        ▼
 *                                     handler ──done──▶ done
 *                                        │ threw, or took longer than `handlerMs` since the claim
 *                                        ▼
 *                                     retry after a pause that doubles each time; the last time, or without a
 *                                     handler for the kind: dead
 *
 * The handler's time ends well before a task is taken back from a worker that seems dead (`processingMs`), so that two
 * work on one task only when the first one stood still in between; and then only one of their marks counts. What
 * happened outside is not undone by that: see store/postgres/task-table.ts.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { TaskBounds } from '../config/limits.ts';
import type { ClaimedTask } from '../domain/task.ts';
import type { LoopHealth } from '../metrics/background.ts';
import type { Instruments } from '../metrics/instruments.ts';
import { blamesRows } from '../store/postgres/failures.ts';
import type { TaskFailure, TaskTable } from '../store/postgres/task-table.ts';
import type { TaskHandler, TaskHandlers } from './handlers.ts';
import type { TaskQueue } from './queue.ts';

export interface WorkerContext {
  readonly table: TaskTable;
  readonly queue: TaskQueue;
  readonly handlers: TaskHandlers;
  readonly instruments: Instruments;
  readonly health: LoopHealth;
  readonly bounds: TaskBounds;
  readonly log: (message: string, details: object) => void;
}

export interface Worker {
  /** Takes nothing more, and waits `stopMs` for what is under way; what is not done then is given back. */
  stop(): Promise<void>;
}

/** One attempt that is under way. */
interface Attempt {
  readonly task: ClaimedTask;
  /** On `performance.now()`'s clock; before the claim was sent, so before the database's own instant of it. */
  readonly claimedMs: number;
  readonly abort: AbortController;
}

/** The reason of a handler's signal when the worker stops. */
const STOPPED = new Error('its worker was stopped');
/** How often a stop interrupts a read: one that was just being sent is not there to be interrupted yet. */
const INTERRUPT_EVERY_MS = 50;
const INTERRUPTS = 10;
/** How long a stop waits for what it aborted to be given back. */
const GIVE_BACK_MS = 1_000;

export function startWorker(context: WorkerContext): Worker {
  const { table, queue, instruments, health, bounds } = context;
  const reader = queue.reader(bounds.blockMs);
  const underWay = new Map<Promise<void>, AbortController>();
  let stopping = false;
  /** Ends a wait of `read`; a promise that lives as long as the worker would keep every race that it was in. */
  let wake = () => {};

  async function claim(ids: readonly string[]): Promise<readonly Attempt[]> {
    const untilMs = performance.now() + bounds.queuedMs; // then they have been taken back
    while (!stopping && performance.now() < untilMs) {
      const claimedMs = performance.now();
      const claimed = await health.step('claim tasks', () => table.claim(ids));
      if (claimed !== null) {
        instruments.taskHintsDropped.inc(ids.length - claimed.length);
        return claimed.map((task) => ({ task, claimedMs, abort: new AbortController() }));
      }
      await sleep(bounds.againMs);
    }
    if (stopping) await health.step('give tasks back', () => table.giveBack(ids));
    return [];
  }

  async function takeSome(free: number): Promise<void> {
    const ids = await health.step('read the stream of tasks', () =>
      reader.read(free).catch((error) => {
        if (stopping) return []; // its connection was closed
        throw error;
      }),
    );
    if (ids === null) await sleep(bounds.againMs);
    if (ids === null || ids.length === 0) return;
    for (const attempt of await claim(ids)) {
      const work = perform(context, attempt).finally(() => {
        underWay.delete(work);
        wake();
      });
      underWay.set(work, attempt.abort);
    }
  }

  async function read(): Promise<void> {
    while (!stopping) {
      const free = bounds.concurrency - underWay.size;
      if (free > 0) await takeSome(free);
      else
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
    }
  }
  const reading = read();

  async function finish(): Promise<void> {
    let ended = false;
    const end = reading.then(() => {
      ended = true;
    });
    for (let i = 0; i < INTERRUPTS && !ended; i++) {
      await reader.interrupt().catch(() => {});
      await atMost(INTERRUPT_EVERY_MS, end);
    }
    reader.close();
    await end;
    await Promise.all(underWay.keys());
  }

  return {
    async stop() {
      stopping = true;
      wake();
      const finished = finish();
      await atMost(bounds.stopMs, finished);
      for (const abort of underWay.values()) abort.abort(STOPPED);
      await atMost(GIVE_BACK_MS, finished);
    },
  };
}

async function atMost(ms: number, work: Promise<void>): Promise<void> {
  const timer = new AbortController();
  await Promise.race([work, sleep(ms, undefined, { signal: timer.signal }).catch(() => {})]);
  timer.abort();
}

/** One attempt, from the claim to its mark. */
async function perform(context: WorkerContext, attempt: Attempt): Promise<void> {
  const { table, handlers, instruments, bounds, log } = context;
  const { task } = attempt;
  const handler = handlers.get(task.kind);
  const timer = instruments.taskSeconds.startTimer({ kind: handler === undefined ? 'unknown' : task.kind });
  const error =
    handler === undefined
      ? `there is no handler for the kind ${task.kind}`
      : await handle(handler, attempt, bounds);
  if (error === null) {
    timer({ result: 'done' });
    return mark(context, attempt, () => table.done(task));
  }
  const failure = failureOf(attempt, error, handler !== undefined, bounds);
  timer({ result: failure.dead ? 'dead' : 'retry' });
  const { id: taskId, kind, attempts } = task;
  if (failure.dead) log('a task is dead', { taskId, kind, attempts, error });
  return mark(context, attempt, () => table.failed(task, failure));
}

/** @returns null when the outside has it, or else why it may not have it */
async function handle(
  handler: TaskHandler,
  { task, claimedMs, abort }: Attempt,
  { handlerMs }: TaskBounds,
): Promise<string | null> {
  const leftMs = claimedMs + handlerMs - performance.now();
  if (leftMs <= 0) return 'the claim took too long';
  const timer = setTimeout(() => abort.abort(new Error(`not done within ${handlerMs} ms`)), leftMs);
  const late = new Promise<never>((_resolve, reject) => {
    abort.signal.addEventListener('abort', () => reject(abort.signal.reason), { once: true });
  });
  try {
    await Promise.race([handler(task, abort.signal), late]);
    return null;
  } catch (error) {
    return messageOf(error);
  } finally {
    clearTimeout(timer);
  }
}

function failureOf(
  { task: { attempts }, abort }: Attempt,
  message: string,
  known: boolean,
  { attempts: most, backoffMs, backoffMostMs }: TaskBounds,
): TaskFailure {
  const error = `attempt ${attempts}: ${message}`;
  // A stop is not the task's fault: it neither waits nor dies for it.
  if (abort.signal.reason === STOPPED) return { error, dead: false, inMs: 0 };
  const pauseMs = Math.min(backoffMs * 2 ** ((attempts - 1) % most), backoffMostMs);
  // Jitter, so that what failed together does not come back together.
  return { error, dead: !known || attempts % most === 0, inMs: pauseMs * (0.75 + Math.random() / 2) };
}

/** What fetch throws says why only in its cause. */
function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause as { readonly code?: string; readonly message?: string } | undefined;
  const why = cause?.code ?? cause?.message;
  return why === undefined ? error.message : `${error.message}: ${why}`;
}

/**
 * Writes down how an attempt ended; again while Postgres does not answer, until the task has been taken back. What Postgres
 * refuses is left to be taken back.
 */
async function mark(
  { health, bounds, log }: WorkerContext,
  { task, claimedMs, abort }: Attempt,
  write: () => Promise<boolean>,
): Promise<void> {
  const item = `task ${task.id}`;
  for (;;) {
    const ours = await health.step('mark tasks', () =>
      write().catch((error) => {
        if (!blamesRows(error)) throw error;
        health.failed(item, error);
        return 'refused' as const;
      }),
    );
    if (ours === 'refused') return;
    if (ours !== null) health.succeeded(item);
    if (ours === true) return;
    if (ours === false) {
      const { id: taskId, kind, attempts } = task;
      log('an attempt ended after its task had been taken back', { taskId, kind, attempts });
      return;
    }
    const late = performance.now() + bounds.againMs > claimedMs + bounds.processingMs;
    if (late || abort.signal.aborted) return;
    await sleep(bounds.againMs);
  }
}
