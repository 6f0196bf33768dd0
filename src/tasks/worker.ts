/**
 * The worker performs due tasks. Every process runs one, which handles several tasks at once; they need no coordination.
 *
 *   a place is free ──▶ claim at most as many due tasks as places are free ──none, or fewer──▶ wait for `pollMs`, the end of
 *                                            │ claimed, `attempts` + 1                         a task, or a wake
 *                                            ▼
 *                                         handler ──done──▶ done
 *                                            │ threw, or exceeded `handlerMs` since the claim
 *                                            ▼
 *                                         retry after a delay that doubles each time; dead after the last attempt, or
 *                                         without a handler for the kind
 *
 * The handler's deadline ends well before the task is reclaimed from a presumably dead worker (`processingMs`). Two workers therefore handle one
 * task at once only when the first was suspended in between, and then only one of their results is stored.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { LoopHealth } from '../concurrency/loop-health.ts';
import type { TaskBounds } from '../config/limits.ts';
import type { ClaimedTask } from '../domain/task.ts';
import { errorLog } from '../metrics/error-log.ts';
import type { Instruments } from '../metrics/instruments.ts';
import { isRowError } from '../store/failures/postgres.ts';
import type { TaskFailure, TaskTable } from '../store/postgres/task-table.ts';
import type { TaskHandler, TaskHandlers } from './handlers.ts';

/** Claims due tasks, at most `max`. */
export type ClaimDue = (max: number) => Promise<readonly ClaimedTask[]>;

export interface WorkerContext {
  readonly table: TaskTable;
  readonly claimDue: ClaimDue;
  readonly handlers: TaskHandlers;
  readonly instruments: Instruments;
  readonly health: LoopHealth;
  readonly bounds: TaskBounds;
  readonly log: (message: string, details: object) => void;
}

export interface Worker {
  /** Claims now instead of after the pause. */
  wake(): void;
  /** Stops claiming and waits `stopMs` for running tasks; then aborts them, so that they are retried. */
  stop(): Promise<void>;
}

/** One running attempt. */
interface Attempt {
  readonly task: ClaimedTask;
  /** Before the claim was sent, so before the database's instant of it; on `performance.now()`'s clock. */
  readonly claimedMs: number;
  readonly abort: AbortController;
  /** Whether the worker no longer waits for the result. */
  readonly isStopped: () => boolean;
}

/** The abort reason when the worker stops. */
const STOPPED = new Error('the worker stopped');
/** Time for recording the results of aborted attempts. */
const RECORD_MS = 1_000;

export function startWorker(context: WorkerContext): Worker {
  const { claimDue, health, bounds } = context;
  const logFailed = errorLog((details, message) => context.log(message, details));
  const running = new Map<Promise<void>, AbortController>();
  let stopping = false;
  let aborted = false;
  const isStopped = () => aborted;
  let woken = false;
  let endPause = () => {};

  function wake(): void {
    woken = true;
    endPause();
  }

  /** Waits until woken. @param ms at most; null: no limit */
  async function pause(ms: number | null): Promise<void> {
    if (stopping || woken || ms === 0) return;
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      endPause = resolve;
      if (ms !== null) timer = setTimeout(resolve, ms);
    });
    clearTimeout(timer);
  }

  function start(attempt: Attempt): void {
    if (aborted) attempt.abort.abort(STOPPED); // its claim was answered too late
    const work = perform({ ...context, logFailed }, attempt).finally(() => {
      running.delete(work);
      wake();
    });
    running.set(work, attempt.abort);
  }

  /** @returns the pause until the next claim, milliseconds */
  async function claim(free: number): Promise<number> {
    const claimedMs = performance.now();
    const claimed = await health.step('claim tasks', () => claimDue(free));
    for (const task of claimed ?? []) start({ task, claimedMs, abort: new AbortController(), isStopped });
    return claimed?.length === free ? 0 : bounds.pollMs;
  }

  async function run(): Promise<void> {
    while (!stopping) {
      woken = false;
      const free = bounds.concurrency - running.size;
      await pause(free === 0 ? null : await claim(free));
    }
    await Promise.all(running.keys());
  }
  const ended = run();

  return {
    wake,
    async stop() {
      stopping = true;
      wake();
      await atMost(bounds.stopMs, ended);
      aborted = true;
      for (const abort of running.values()) abort.abort(STOPPED);
      await atMost(RECORD_MS, ended);
    },
  };
}

async function atMost(ms: number, work: Promise<void>): Promise<void> {
  const timer = new AbortController();
  await Promise.race([work, sleep(ms, undefined, { signal: timer.signal }).catch(() => {})]);
  timer.abort();
}

/** Performs one claimed attempt and records its result. */
async function perform(
  context: WorkerContext & { readonly logFailed: ReturnType<typeof errorLog> },
  attempt: Attempt,
): Promise<void> {
  const { table, handlers, instruments, bounds, log, logFailed } = context;
  const { task } = attempt;
  const handler = handlers.get(task.kind);
  const timer = instruments.taskSeconds.startTimer({ kind: handler === undefined ? 'unknown' : task.kind });
  const error =
    handler === undefined ? `no handler for the kind ${task.kind}` : await handle(handler, attempt, bounds);
  if (error === null) {
    timer({ result: 'done' });
    return record(context, attempt, () => table.done(task));
  }
  const failure = failureOf(attempt, error, handler !== undefined, bounds);
  timer({ result: failure.dead ? 'dead' : 'retry' });
  const { id: taskId, kind, attempts, idempotencyKey: key } = task;
  const message = 'Attempt at a task failed, and is repeated';
  if (failure.dead) log('Task is dead', { taskId, kind, attempts, error });
  else logFailed({ err: error, operation: `task ${kind}`, details: { taskId, key, attempts }, message });
  return record(context, attempt, () => table.failed(task, failure));
}

/** @returns null when the receiver confirmed the task, else the reason of the failure */
async function handle(
  handler: TaskHandler,
  { task, claimedMs, abort }: Attempt,
  { handlerMs }: TaskBounds,
): Promise<string | null> {
  const leftMs = claimedMs + handlerMs - performance.now();
  if (leftMs <= 0) return 'claiming the task took too long';
  const timer = setTimeout(() => abort.abort(new Error(`not done within ${handlerMs} ms`)), leftMs);
  const aborted = new Promise<never>((_resolve, reject) => {
    abort.signal.addEventListener('abort', () => reject(abort.signal.reason), { once: true });
  });
  try {
    abort.signal.throwIfAborted();
    await Promise.race([handler(task, abort.signal), aborted]);
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
  hasHandler: boolean,
  { attempts: maxAttempts, backoffMs, maxBackoffMs }: TaskBounds,
): TaskFailure {
  const error = `attempt ${attempts}: ${message}`;
  // A shutdown does not count against the task: it is retried at once.
  if (abort.signal.reason === STOPPED) return { error, dead: false, inMs: 0 };
  const delayMs = Math.min(backoffMs * 2 ** ((attempts - 1) % maxAttempts), maxBackoffMs);
  const dead = !hasHandler || attempts % maxAttempts === 0;
  // Jitter, so that tasks that failed together are not retried together.
  return { error, dead, inMs: delayMs * (0.75 + Math.random() / 2) };
}

/** The message with that of the cause: errors of fetch name the reason only there. */
function messageOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause as { readonly code?: string; readonly message?: string } | undefined;
  const reason = cause?.code ?? cause?.message;
  return reason === undefined ? error.message : `${error.message}: ${reason}`;
}

/**
 * Records the result of an attempt. Retries while Postgres does not answer, until the task is reclaimed. A result that
 * Postgres rejects is dropped, and the task is reclaimed later.
 */
async function record(
  { health, bounds, log }: WorkerContext,
  { task, claimedMs, isStopped }: Attempt,
  write: () => Promise<boolean>,
): Promise<void> {
  const item = `task ${task.id}`;
  for (;;) {
    const isOurs = await health.step('record task results', () =>
      write().catch((error) => {
        if (!isRowError(error)) throw error;
        health.failed(item, error);
        return 'rejected' as const;
      }),
    );
    if (isOurs === 'rejected') return;
    if (isOurs !== null) health.succeeded(item);
    if (isOurs === true) return;
    if (isOurs === false) {
      const { id: taskId, kind, attempts } = task;
      log('Attempt ended after its task was reclaimed', { taskId, kind, attempts });
      return;
    }
    const isLate = performance.now() + bounds.storeRetryMs > claimedMs + bounds.processingMs;
    if (isLate || isStopped()) return;
    await sleep(bounds.storeRetryMs);
  }
}
