/**
 * Tasks in Postgres: the outbox's truth. Each arrow is one statement, conditional on the state that it leaves; Redis
 * only carries hints of what to look at.
 *
 *                     dispatcher              worker                        worker
 *   (written) ──▶ waiting ──▶ queued ──────────────▶ processing ──────────────────▶ done
 *                  ▲ ▲   ┌──▶   │                        │ failed, or its worker died
 *                  │ │   │      │ nobody claimed it      ▼
 *                  │ └───│──────┘ in time              retry (not before run_at); after the last attempt, and for a
 *                  │     └─dispatcher────────────────────┘   kind that nobody handles: dead
 *                  └─operator: POST /tasks/{id}/retry────────────────────────────────────┘
 *
 * `attempts` grows with every claim and never goes back, so that it tells one claim from another: who was given up as
 * dead and comes back marks nothing. Every `limits.tasks.attempts`th attempt that fails is a last one; an operator's
 * retry so gives a whole new round. All instants are the database's.
 *
 * A process may die between any two arrows, and what it held is taken back after its time. One gap no outbox closes: a
 * worker that dies after the effect and before `done` leaves a task that is done again. The outside can tell by the
 * idempotency key, which is the same for every attempt.
 */
import type { ClaimedTask, Task, TaskState } from '../../domain/task.ts';
import type { LoopHealth } from '../../metrics/background.ts';
import { blamesRows } from './failures.ts';
import { isolating, type PostgresStore } from './pool.ts';

/** How a failed attempt is written down. */
export interface TaskFailure {
  readonly error: string;
  /** No further attempt. */
  readonly dead: boolean;
  /** The next attempt is not before so many milliseconds. */
  readonly inMs: number;
}

export interface TaskTable {
  /**
   * Marks due tasks as queued, the oldest first, at most so many that waited and so many to be retried.
   * @param rivals what to do about tasks that another dispatcher is marking: `skip` them, or `meet` them, which is
   *   safe, too, but waits for that one, and then marks fewer
   * @returns their numbers
   */
  pick(most: number, rivals: 'skip' | 'meet'): Promise<readonly string[]>;
  /** What was marked and not enqueued, or read and not claimed, waits again. */
  giveBack(ids: readonly string[]): Promise<number>;
  /** Tasks queued for longer wait again: their entry is lost. @returns how many */
  takeBackQueued(olderMs: number, most: number): Promise<number>;
  /** Tasks processing for longer are retried, or dead after the last attempt: their worker is gone. @returns how many */
  takeBackProcessing(olderMs: number, most: number, attempts: number): Promise<number>;
  /** Claims those that are queued; of several who ask for a task, one gets it. */
  claim(ids: readonly string[]): Promise<readonly ClaimedTask[]>;
  /** @returns false when the claim had been taken back */
  done(claim: ClaimedTask): Promise<boolean>;
  /** @returns false when the claim had been taken back */
  failed(claim: ClaimedTask, failure: TaskFailure): Promise<boolean>;
  get(id: number): Promise<Task | null>;
  /** Newest first. */
  list(state: TaskState | null, most: number): Promise<readonly Task[]>;
  /** A dead task waits again. @returns null when it is not dead, or there is none */
  revive(id: number): Promise<Task | null>;
  /** How many there are of each state but `done`. */
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

/** Due tasks of one state; each state by itself, so that the index on (state, run_at) gives them in their order. */
const due = (state: TaskState, locking: string) =>
  `SELECT id FROM tasks WHERE state = '${state}' AND run_at <= now() AND id <> ALL($2::bigint[])
   ORDER BY run_at LIMIT $1 ${locking}`;

const pickStatement = (locking: string) => `
  WITH fresh AS MATERIALIZED (${due('waiting', locking)}), again AS MATERIALIZED (${due('retry', locking)})
  UPDATE tasks SET state = 'queued', updated_at = now()
  WHERE id IN (SELECT id FROM fresh UNION ALL SELECT id FROM again) AND state IN ('waiting', 'retry')
  RETURNING id`;

const PICK = { skip: pickStatement('FOR UPDATE SKIP LOCKED'), meet: pickStatement('') };
const DUE = `(${due('waiting', '')}) UNION ALL (${due('retry', '')})`;

/** Tasks in a state for too long; those that somebody is moving at this moment are not. */
const overdue = (state: TaskState, locking = '') =>
  `SELECT id FROM tasks WHERE state = '${state}' AND updated_at < now() - $1 * interval '1 millisecond'
     AND id <> ALL($3::bigint[]) LIMIT $2 ${locking}`;

/** Changes those of these tasks that are in a state, except rows that another transaction has locked. */
const change = (from: string, set: string) => `
  WITH mine AS MATERIALIZED (
    SELECT id FROM tasks WHERE id = ANY($1::bigint[]) AND state IN (${from}) FOR UPDATE SKIP LOCKED
  )
  UPDATE tasks SET ${set}, updated_at = now() WHERE id IN (SELECT id FROM mine) AND state IN (${from})`;

const WAIT_AGAIN = `state = 'waiting'`;
/** @param attempts the parameter that says how many there are */
const retryOrDie = (
  attempts: string,
) => `state = CASE WHEN attempts % ${attempts} = 0 THEN 'dead' ELSE 'retry' END,
  run_at = now(), last_error = 'attempt ' || attempts || ': its worker was gone'`;

/** Tasks that Postgres refuses to change which one call finds; the others that it has not come to wait for the next one. */
const REFUSALS = 32;

/**
 * What dispatchers and workers send. A task that Postgres refuses to change is left alone for a while, and keeps no other
 * from being dispatched, claimed or taken back.
 */
export function taskTable(postgres: PostgresStore, health: LoopHealth): TaskTable {
  const { pool } = postgres;
  const count = async (sql: string, values: unknown[]) => (await pool.query(sql, values)).rowCount ?? 0;
  const refused = (id: string, error: unknown) => health.failed(`task ${id}`, error);

  /** @param statement whose first parameter are the ids, and which returns them */
  async function changeEach<R extends { id: string }>(
    ids: readonly string[],
    statement: string,
    ...values: unknown[]
  ): Promise<readonly R[]> {
    const work = async (some: readonly string[]) => (await pool.query<R>(statement, [some, ...values])).rows;
    const { results } = await isolating(ids, work, refused, REFUSALS);
    for (const { id } of results) health.succeeded(`task ${id}`);
    return results;
  }

  /** One statement that finds and changes tasks; where it is refused, they are found first and changed then. */
  async function findAndChange(
    both: { readonly text: string; readonly values: readonly unknown[] },
    find: { readonly text: string; readonly values: readonly unknown[] },
    ...[statement, ...values]: [string, ...unknown[]]
  ): Promise<readonly string[]> {
    try {
      return (await pool.query<{ id: string }>(both.text, [...both.values])).rows.map(({ id }) => id);
    } catch (error) {
      if (!blamesRows(error)) throw error;
      const { rows } = await pool.query<{ id: string }>(find.text, [...find.values]);
      const ids = rows.map(({ id }) => id);
      return (await changeEach(ids, statement, ...values)).map(({ id }) => id);
    }
  }

  /** @returns how many */
  async function takeBack(
    state: 'queued' | 'processing',
    set: (parameter: string) => string,
    olderMs: number,
    most: number,
    ...more: number[]
  ): Promise<number> {
    const values = [olderMs, most, health.resting('task')];
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
    pick(most, rivals) {
      const values = [most, health.resting('task')];
      return findAndChange(
        { text: PICK[rivals], values },
        { text: DUE, values },
        `${change(`'waiting', 'retry'`, `state = 'queued'`)} RETURNING id`,
      );
    },
    giveBack: async (ids) => (await changeEach(ids, `${change(`'queued'`, WAIT_AGAIN)} RETURNING id`)).length,
    takeBackQueued: (olderMs, most) => takeBack('queued', () => WAIT_AGAIN, olderMs, most),
    takeBackProcessing: (olderMs, most, attempts) =>
      takeBack('processing', retryOrDie, olderMs, most, attempts),
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
        `UPDATE tasks SET state = 'done', updated_at = now() WHERE id = $1 AND state = 'processing' AND attempts = $2`,
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

/** What people ask. */
function forOperators({ pool }: PostgresStore): Pick<TaskTable, 'get' | 'list' | 'revive' | 'countOpen'> {
  return {
    async get(id) {
      const { rows } = await pool.query<TaskRow>(`SELECT ${COLUMNS} FROM tasks WHERE id = $1`, [id]);
      return rows[0] === undefined ? null : toTask(rows[0]);
    },
    async list(state, most) {
      const where = state === null ? '' : 'WHERE state = $2';
      const { rows } = await pool.query<TaskRow>(
        `SELECT ${COLUMNS} FROM tasks ${where} ORDER BY id DESC LIMIT $1`,
        state === null ? [most] : [most, state],
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
      // Not those that are done: they are the most, and an index over the others is small.
      const { rows } = await pool.query<{ state: TaskState; count: string }>(
        `SELECT state, count(*) FROM tasks
         WHERE state IN ('waiting', 'queued', 'processing', 'retry', 'dead') GROUP BY state`,
      );
      return new Map(rows.map((row) => [row.state, Number(row.count)]));
    },
  };
}

/** An error that is longer than this helps nobody. */
const ERROR_LENGTH = 1_000;

/** Text that Postgres takes: it refuses NUL. */
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
