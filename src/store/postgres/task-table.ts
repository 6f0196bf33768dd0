/**
 * Tasks in Postgres, the source of truth of task processing. Each arrow is one statement, conditional on the state that it
 * leaves. Redis carries only hints of which tasks to claim.
 *
 *                     dispatcher              worker                        worker
 *   (written) ──▶ waiting ──▶ queued ──────────────▶ processing ──────────────────▶ done
 *                  ▲ ▲   ┌──▶   │                        │ failed, or its worker died
 *                  │ │   │      │ not claimed            ▼
 *                  │ └───│──────┘ in time              retry (not before run_at); dead after the last attempt, or
 *                  │     └─dispatcher────────────────────┘   without a handler for its kind
 *                  └─operator: POST /tasks/{id}/retry────────────────────────────────────┘
 *
 * `attempts` grows with every claim and is never reset, so it identifies a claim: a worker that was presumed dead and resumes
 * updates nothing. Every `limits.tasks.attempts`th failed attempt is final; an operator's retry therefore grants a full new
 * round. All instants come from the database's clock.
 *
 * A process may die between any two arrows; its tasks are reclaimed after a timeout. One gap remains in every outbox: a worker
 * that dies after the effect and before `done` leaves a task that is performed again. The receiver can detect that by the
 * idempotency key, which is the same for every attempt.
 */
import type { ClaimedTask, Task, TaskState } from '../../domain/task.ts';
import type { LoopHealth } from '../../metrics/background.ts';
import { isRowError } from './failures.ts';
import { isolating, type PostgresStore } from './pool.ts';

/** The result of a failed attempt. */
export interface TaskFailure {
  readonly error: string;
  /** No further attempt. */
  readonly dead: boolean;
  /** Delay until the next attempt, milliseconds. */
  readonly inMs: number;
}

export interface TaskTable {
  /**
   * Marks due tasks as queued, oldest first: at most `max` waiting ones and `max` retries.
   * @param contended what to do about rows that another dispatcher has locked: `skip` them, or `wait` for them, which is
   *   also safe and may queue fewer
   * @returns their ids
   */
  queueDue(max: number, contended: 'skip' | 'wait'): Promise<readonly string[]>;
  /** Returns tasks that were queued but not enqueued, or read but not claimed, to `waiting`. */
  returnToWaiting(ids: readonly string[]): Promise<number>;
  /** Returns tasks queued for longer to `waiting`: their stream entry is lost. @returns their number */
  reclaimQueued(olderMs: number, max: number): Promise<number>;
  /** Fails tasks processing for longer: their worker is gone. They are retried, or dead after the last attempt. @returns their number */
  reclaimProcessing(olderMs: number, max: number, attempts: number): Promise<number>;
  /** Claims queued tasks. Of concurrent claims to one task exactly one succeeds. */
  claim(ids: readonly string[]): Promise<readonly ClaimedTask[]>;
  /** @returns false when the task was reclaimed */
  done(claim: ClaimedTask): Promise<boolean>;
  /** @returns false when the task was reclaimed */
  failed(claim: ClaimedTask, failure: TaskFailure): Promise<boolean>;
  get(id: number): Promise<Task | null>;
  /** Newest first. */
  list(state: TaskState | null, max: number): Promise<readonly Task[]>;
  /** Returns a dead task to `waiting`. @returns null when it is not dead or does not exist */
  revive(id: number): Promise<Task | null>;
  /** Number of tasks in each state except `done`. */
  countOpen(): Promise<ReadonlyMap<TaskState, number>>;
}

const COLUMNS = 'id, kind, key, payload, state, attempts, run_at, last_error, created_at, updated_at';

interface TaskRow {
  readonly id: string;
  readonly kind: string;
  readonly key: string | null;
  readonly payload: unknown;
  readonly state: TaskState;
  readonly attempts: number;
  readonly run_at: Date;
  readonly last_error: string | null;
  readonly created_at: Date;
  readonly updated_at: Date;
}

/** Due tasks of one state. Each state has its own query, so that the index on (state, run_at) yields them in order. */
const due = (state: TaskState, locking: string) =>
  `SELECT id FROM tasks WHERE state = '${state}' AND run_at <= now() AND id <> ALL($2::bigint[])
   ORDER BY run_at LIMIT $1 ${locking}`;

const queueStatement = (locking: string) => `
  WITH fresh AS MATERIALIZED (${due('waiting', locking)}), again AS MATERIALIZED (${due('retry', locking)})
  UPDATE tasks SET state = 'queued', updated_at = now()
  WHERE id IN (SELECT id FROM fresh UNION ALL SELECT id FROM again) AND state IN ('waiting', 'retry')
  RETURNING id`;

const QUEUE_DUE = { skip: queueStatement('FOR UPDATE SKIP LOCKED'), wait: queueStatement('') };
const DUE = `(${due('waiting', '')}) UNION ALL (${due('retry', '')})`;

/** Tasks that were in a state for too long; `SKIP LOCKED` excludes those that are changing state. */
const overdue = (state: TaskState, locking = '') =>
  `SELECT id FROM tasks WHERE state = '${state}' AND updated_at < now() - $1 * interval '1 millisecond'
     AND id <> ALL($3::bigint[]) LIMIT $2 ${locking}`;

/** Updates the tasks among these that are in a state, except rows locked by another transaction. */
const change = (from: string, set: string) => `
  WITH mine AS MATERIALIZED (
    SELECT id FROM tasks WHERE id = ANY($1::bigint[]) AND state IN (${from}) FOR UPDATE SKIP LOCKED
  )
  UPDATE tasks SET ${set}, updated_at = now() WHERE id IN (SELECT id FROM mine) AND state IN (${from})`;

const TO_WAITING = `state = 'waiting'`;
/** @param attempts the parameter that holds the attempts of a round */
const retryOrDie = (
  attempts: string,
) => `state = CASE WHEN attempts % ${attempts} = 0 THEN 'dead' ELSE 'retry' END,
  run_at = now(), last_error = 'attempt ' || attempts || ': its worker died'`;

/** Rejected tasks that one call isolates; tasks it has not reached wait for the next call. */
const MAX_REJECTIONS = 32;

/**
 * The statements of dispatchers and workers. A task whose update Postgres rejects backs off for a while and does not stop
 * others from being dispatched, claimed or reclaimed.
 */
export function taskTable(postgres: PostgresStore, health: LoopHealth): TaskTable {
  const { pool } = postgres;
  const count = async (sql: string, values: unknown[]) => (await pool.query(sql, values)).rowCount ?? 0;
  const rejected = (id: string, error: unknown) => health.failed(`task ${id}`, error);

  /** @param statement takes the ids as its first parameter and returns them */
  async function changeEach<R extends { id: string }>(
    ids: readonly string[],
    statement: string,
    ...values: unknown[]
  ): Promise<readonly R[]> {
    const work = async (some: readonly string[]) => (await pool.query<R>(statement, [some, ...values])).rows;
    const { results } = await isolating(ids, work, rejected, MAX_REJECTIONS);
    for (const { id } of results) health.succeeded(`task ${id}`);
    return results;
  }

  /** Runs one statement that finds and updates tasks; when Postgres rejects it, finds them first and updates them one by one. */
  async function findAndChange(
    both: { readonly text: string; readonly values: readonly unknown[] },
    find: { readonly text: string; readonly values: readonly unknown[] },
    ...[statement, ...values]: [string, ...unknown[]]
  ): Promise<readonly string[]> {
    try {
      return (await pool.query<{ id: string }>(both.text, [...both.values])).rows.map(({ id }) => id);
    } catch (error) {
      if (!isRowError(error)) throw error;
      const { rows } = await pool.query<{ id: string }>(find.text, [...find.values]);
      const ids = rows.map(({ id }) => id);
      return (await changeEach(ids, statement, ...values)).map(({ id }) => id);
    }
  }

  /** @returns the number of tasks */
  async function reclaim(
    state: 'queued' | 'processing',
    set: (parameter: string) => string,
    olderMs: number,
    max: number,
    ...more: number[]
  ): Promise<number> {
    const values = [olderMs, max, health.backingOff('task')];
    const both = `WITH overdue AS MATERIALIZED (${overdue(state, 'FOR UPDATE SKIP LOCKED')})
      UPDATE tasks SET ${set('$4')}, updated_at = now()
      WHERE id IN (SELECT id FROM overdue) AND state = '${state}' RETURNING id`;
    const ids = await findAndChange(
      { text: both, values: [...values, ...more] },
      { text: overdue(state), values },
      `${change(`'${state}'`, set('$2'))} RETURNING id`,
      ...more,
    );
    return ids.length;
  }

  return {
    queueDue(max, contended) {
      const values = [max, health.backingOff('task')];
      return findAndChange(
        { text: QUEUE_DUE[contended], values },
        { text: DUE, values },
        `${change(`'waiting', 'retry'`, `state = 'queued'`)} RETURNING id`,
      );
    },
    returnToWaiting: async (ids) =>
      (await changeEach(ids, `${change(`'queued'`, TO_WAITING)} RETURNING id`)).length,
    reclaimQueued: (olderMs, max) => reclaim('queued', () => TO_WAITING, olderMs, max),
    reclaimProcessing: (olderMs, max, attempts) => reclaim('processing', retryOrDie, olderMs, max, attempts),
    async claim(ids) {
      const rows = await changeEach<Omit<ClaimedTask, 'id'> & { id: string }>(
        ids,
        `${change(`'queued'`, `state = 'processing', attempts = attempts + 1`)}
         RETURNING id, kind, coalesce(key, 'task:' || id) AS "idempotencyKey", payload, attempts`,
      );
      return rows.map((row) => ({ ...row, id: Number(row.id) }));
    },
    done: async ({ id, attempts }) =>
      (await count(
        `WITH done AS (
           UPDATE tasks SET state = 'done', updated_at = now()
           WHERE id = $1 AND state = 'processing' AND attempts = $2 RETURNING kind, payload
         ), audited AS (
           INSERT INTO audit_pending (actor, action, subject, details)
           SELECT 'service', 'refund.sent', 'order ' || (payload ->> 'orderId'), payload::text FROM done WHERE kind = 'refund'
         )
         SELECT FROM done`,
        [id, attempts],
      )) === 1,
    failed: async ({ id, attempts }, { error, dead, inMs }) =>
      (await count(
        `UPDATE tasks SET state = $3, last_error = $4, run_at = now() + $5 * interval '1 millisecond', updated_at = now()
         WHERE id = $1 AND state = 'processing' AND attempts = $2`,
        [id, attempts, dead ? 'dead' : 'retry', asText(error), inMs],
      )) === 1,
    ...forOperators(postgres),
  };
}

/** The queries of operators. */
function forOperators({ pool }: PostgresStore): Pick<TaskTable, 'get' | 'list' | 'revive' | 'countOpen'> {
  return {
    async get(id) {
      const { rows } = await pool.query<TaskRow>(`SELECT ${COLUMNS} FROM tasks WHERE id = $1`, [id]);
      return rows[0] === undefined ? null : toTask(rows[0]);
    },
    async list(state, max) {
      const where = state === null ? '' : 'WHERE state = $2';
      const { rows } = await pool.query<TaskRow>(
        `SELECT ${COLUMNS} FROM tasks ${where} ORDER BY id DESC LIMIT $1`,
        state === null ? [max] : [max, state],
      );
      return rows.map(toTask);
    },
    async revive(id) {
      const { rows } = await pool.query<TaskRow>(
        `UPDATE tasks SET state = 'waiting', run_at = now(), updated_at = now()
         WHERE id = $1 AND state = 'dead' RETURNING ${COLUMNS}`,
        [id],
      );
      return rows[0] === undefined ? null : toTask(rows[0]);
    },
    async countOpen() {
      // Without `done`, the state of most rows: an index over the others is small.
      const { rows } = await pool.query<{ state: TaskState; count: string }>(
        `SELECT state, count(*) FROM tasks
         WHERE state IN ('waiting', 'queued', 'processing', 'retry', 'dead') GROUP BY state`,
      );
      return new Map(rows.map((row) => [row.state, Number(row.count)]));
    },
  };
}

/** Characters of an error that are stored. */
const ERROR_LENGTH = 1_000;

/** Removes NUL, which Postgres cannot store in text. */
function asText(error: string): string {
  return error.replaceAll('\0', '').slice(0, ERROR_LENGTH);
}

function toTask(row: TaskRow): Task {
  return {
    id: Number(row.id),
    kind: row.kind,
    key: row.key,
    payload: row.payload,
    state: row.state,
    attempts: row.attempts,
    runAt: row.run_at.toISOString(),
    lastError: row.last_error,
    createdAt: row.created_at.toISOString(),
    updatedAt: row.updated_at.toISOString(),
  };
}
