/**
 * Tasks in Postgres, which alone decides. Each arrow is one statement, conditional on the state that it leaves.
 *
 *   (written) ──▶ waiting ──worker──▶ processing ──worker──▶ done
 *                    ▲                 │      │ ▲
 *                    │    the last time│      │ │worker, when run_at has come
 *                    │                 ▼      ▼ │
 *                    └──operator──── dead    retry
 *                                      └──operator──▶ done
 *
 * From `processing` a task goes to `retry` when its attempt failed or its worker died, and to `dead` when that was the last
 * attempt, or when its kind has no handler. The operator retries it, or discards it: POST /tasks/{id}/retry, /discard. A refund ends what would deliver the
 * order; an attempt in progress is then the last, whatever its result.
 *
 * `attempts` grows with every claim and is never reset, so it identifies a claim: a worker that was presumed dead and resumes
 * updates nothing. Every `limits.tasks.attempts`th failed attempt is final; an operator's retry therefore grants a full new
 * round. All instants come from the database's clock.
 *
 * A process may die between any two arrows, and a claim may commit although its answer is lost: such tasks stay in `processing` until they are
 * reclaimed after a timeout. A worker that dies after the effect and before `done` leaves a task that is performed again, with the same
 * idempotency key.
 *
 * Earlier versions put due tasks into a Redis stream and marked them `queued`. Nothing writes this state any more, but such
 * rows exist after an upgrade, and during a rolling restart; those that no earlier version claims return to `waiting`.
 */
import type pg from 'pg';
import type { LoopHealth } from '../../concurrency/loop-health.ts';
import type { ClaimedTask, Task, TaskKind, TaskState } from '../../domain/task.ts';
import { isRowError } from '../failures/postgres.ts';
import { drain } from './drain.ts';
import { type PostgresStore, queryOnce } from './pool.ts';
import { fromRow } from './rows.ts';

/** A key is sent as a header, which has visible ASCII. The percent sign is encoded, too, so that ids that differ have keys that differ. */
const encoded = (payment: string): string => payment.replace(/[^!-$&-~]/gu, encodeURIComponent);

/**
 * Adds a task. Idempotent: there is at most one task of each kind for an order and, of refunds, for each further payment.
 * @param payment id of the notification of a further payment
 */
export async function addTask(
  db: Pick<pg.PoolClient, 'query'>,
  kind: TaskKind,
  orderId: string,
  payload: object,
  payment: string | null = null,
): Promise<void> {
  await db.query('INSERT INTO tasks (kind, key, payload) VALUES ($1, $2, $3) ON CONFLICT (key) DO NOTHING', [
    kind,
    payment === null ? `${kind}:${orderId}` : `${kind}:${orderId}:${encoded(payment)}`,
    payload,
  ]);
}

/** Why a task that would deliver an order ended. */
export const REFUNDED = 'the order was refunded';
/** The mark of one that was processing then; in its own row, so that the result of its attempt, which waits for the row, sees it. */
export const IS_LAST = 'the order was refunded during an attempt';

/** After a failed attempt. */
const unlessLast = (state: string, error: string) =>
  `state = CASE last_error WHEN '${IS_LAST}' THEN 'done' ELSE ${state} END,
   last_error = CASE last_error WHEN '${IS_LAST}' THEN '${REFUNDED}' ELSE ${error} END`;

/** The result of a failed attempt. */
export interface TaskFailure {
  readonly error: string;
  /** No further attempt. */
  readonly dead: boolean;
  /** Delay until the next attempt, milliseconds. */
  readonly inMs: number;
}

export type TaskTable = ReturnType<typeof taskTable>;

/** `ORDER BY id` would sort by this number, which has no index. */
const COLUMNS = `id::float8 AS id, kind, key, payload, state, attempts, run_at AS "runAt", last_error AS "lastError",
  created_at AS "createdAt", updated_at AS "updatedAt"`;

/** Tasks of one subject are performed one after the other, in the order in which they were written. */
const ITS_TURN = `(subject IS NULL OR NOT EXISTS (
  SELECT FROM tasks AS earlier WHERE earlier.subject = tasks.subject AND earlier.id < tasks.id AND earlier.state <> 'done'))`;

/** Due tasks of one state. Each state has its own query, so that the index on (state, run_at) yields them in order. */
const ofState = (state: TaskState, locking: string) =>
  `SELECT id, run_at FROM tasks WHERE state = '${state}' AND run_at <= now() AND id <> ALL($2::bigint[])
   AND kind <> ALL($3::text[]) AND ${ITS_TURN} ORDER BY run_at LIMIT $1 ${locking}`;

/** The longest due tasks of both states, so that neither waits for the other. */
const due = (locking: string) => `
  WITH fresh AS MATERIALIZED (${ofState('waiting', locking)}), again AS MATERIALIZED (${ofState('retry', locking)}),
  due AS MATERIALIZED (SELECT * FROM fresh UNION ALL SELECT * FROM again ORDER BY run_at LIMIT $1)`;

const TO_PROCESSING = `state = 'processing', attempts = attempts + 1`;
const CLAIMED = `RETURNING id, kind, coalesce(key, 'task:' || id) AS "idempotencyKey", payload, attempts`;

const CLAIM_DUE = `${due('FOR UPDATE SKIP LOCKED')}
  UPDATE tasks SET ${TO_PROCESSING}, updated_at = now()
  WHERE id IN (SELECT id FROM due) AND state IN ('waiting', 'retry') ${CLAIMED}`;

const FIND_DUE = `${due('')} SELECT id FROM due ORDER BY run_at`;

/** @param ms the parameter that holds an age, milliseconds */
const isOlder = (ms: string) => `updated_at < now() - ${ms} * interval '1 millisecond'`;

/** Tasks that were in a state for too long. */
const overdue = (state: TaskState) =>
  `SELECT id FROM tasks WHERE state = '${state}' AND ${isOlder('$1')} AND id <> ALL($3::bigint[]) LIMIT $2`;

/** Updates the tasks among these that are in a state and meet the condition, except rows locked by another transaction. */
const change = (from: string, set: string, condition = 'true') => `
  WITH mine AS MATERIALIZED (
    SELECT id FROM tasks WHERE id = ANY($1::bigint[]) AND state IN (${from}) AND ${condition} FOR UPDATE SKIP LOCKED
  )
  UPDATE tasks SET ${set}, updated_at = now() WHERE id IN (SELECT id FROM mine) AND state IN (${from})`;

/** @param attempts the parameter that holds the attempts of a round */
const retryOrDie = (attempts: string) =>
  `run_at = now(), ${unlessLast(
    `CASE WHEN attempts % ${attempts} = 0 THEN 'dead' ELSE 'retry' END`,
    `'attempt ' || attempts || ': its worker died'`,
  )}`;

const CLAIM = `${change(`'waiting', 'retry'`, TO_PROCESSING)} ${CLAIMED}`;

/** Rejected tasks that one claim passes by; tasks it has not reached wait for the next one. */
const MAX_REJECTIONS = 32;

interface ClaimedRow extends Omit<ClaimedTask, 'id'> {
  readonly id: string;
}

/** The kinds among these of which a task waits. */
const WAITING_OF = `SELECT kind FROM unnest($1::text[]) AS kinds(kind)
  WHERE EXISTS (SELECT FROM tasks WHERE tasks.kind = kinds.kind AND state IN ('waiting', 'retry'))`;

/** One failed attempt is no news: receivers are restarted. */
const ATTEMPTS_TOLERATED = 2;

/** The error of one task of each kind among these that is dead, or was tried more often than tolerated. */
const FAILING_OF = `SELECT kind, regexp_replace(error, '^attempt [0-9]+: ', '') AS error FROM unnest($1::text[]) AS kinds(kind)
  CROSS JOIN LATERAL (SELECT last_error AS error FROM tasks
    WHERE tasks.kind = kinds.kind AND state IN ('retry', 'dead') AND (state = 'dead' OR attempts > ${ATTEMPTS_TOLERATED}) LIMIT 1) AS failing`;

/**
 * The statements of workers. A task whose update Postgres rejects backs off for a while and does not stop others from being
 * claimed or reclaimed.
 * @param unreceived kinds that are not claimed
 */
export function taskTable(postgres: PostgresStore, health: LoopHealth, unreceived: readonly TaskKind[] = []) {
  const { pool } = postgres;
  const count = async (sql: string, values: unknown[]) => (await pool.query(sql, values)).rowCount ?? 0;

  /** @param statement updates the tasks of its first parameter and returns them */
  const changeEach = <R extends { readonly id: string }>(
    ids: readonly string[],
    statement: string,
    ...values: unknown[]
  ): Promise<readonly R[]> =>
    drain({ health, kind: 'task' }, ids, async (some) => {
      const { rows } = await queryOnce<R>(pool, statement, [some, ...values]);
      return rows;
    });

  const find = async (text: string, ...values: unknown[]) =>
    (await pool.query<{ id: string }>(text, values)).rows.map(({ id }) => id);

  /** @returns the number of tasks */
  async function reclaim(
    state: 'queued' | 'processing',
    set: string,
    olderMs: number,
    max: number,
    ...more: number[]
  ): Promise<number> {
    const ids = await find(overdue(state), olderMs, max, health.backingOff('task'));
    if (ids.length === 0) return 0;
    const statement = `${change(`'${state}'`, set, isOlder('$2'))} RETURNING id`;
    return (await changeEach(ids, statement, olderMs, ...more)).length;
  }

  /** Claims one by one, so that it claims no more than `max`. */
  async function claimEach(max: number, ...without: unknown[]): Promise<readonly ClaimedRow[]> {
    const claimed: ClaimedRow[] = [];
    for (const id of await find(FIND_DUE, max + MAX_REJECTIONS, ...without)) {
      if (claimed.length >= max) break;
      claimed.push(...(await changeEach<ClaimedRow>([id], CLAIM)));
    }
    return claimed;
  }

  return {
    /**
     * Claims due tasks, the longest due first, at most `max`. Rows that another worker has locked are skipped: none waits. Of concurrent
     * claims to one task exactly one succeeds.
     * @returns them in the order in which they were written
     */
    async claimDue(max: number): Promise<readonly ClaimedTask[]> {
      const without = [health.backingOff('task'), unreceived];
      const rows = await queryOnce<ClaimedRow>(pool, CLAIM_DUE, [max, ...without]).then(
        (claimed) => claimed.rows,
        (error) => {
          if (!isRowError(error)) throw error;
          return claimEach(max, ...without);
        },
      );
      return rows.map((row) => ({ ...row, id: Number(row.id) })).sort((a, b) => a.id - b.id);
    },
    /** @returns the kinds among these of which a task waits */
    waitingOf: async (kinds: readonly TaskKind[]): Promise<ReadonlySet<string>> =>
      new Set((await pool.query<{ kind: string }>(WAITING_OF, [kinds])).rows.map(({ kind }) => kind)),
    /** @returns the last error of a task, by those of these kinds whose tasks keep failing */
    failingOf: async (kinds: readonly TaskKind[]): Promise<ReadonlyMap<string, string | null>> => {
      const { rows } = await pool.query<{ kind: string; error: string | null }>(FAILING_OF, [kinds]);
      return new Map(rows.map(({ kind, error }) => [kind, error]));
    },
    /** Returns tasks queued for longer to `waiting`: an earlier version left them. @returns their number */
    reclaimQueued: (olderMs: number, max: number) => reclaim('queued', `state = 'waiting'`, olderMs, max),
    /** Fails tasks processing for longer: their worker is gone. They are retried, or dead after the last attempt. @returns their number */
    reclaimProcessing: (olderMs: number, max: number, attempts: number) =>
      reclaim('processing', retryOrDie('$3'), olderMs, max, attempts),
    /** @returns false when the task was reclaimed */
    done: async ({ id, attempts }: ClaimedTask) =>
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
    /** @returns false when the task was reclaimed */
    failed: async ({ id, attempts }: ClaimedTask, { error, dead, inMs }: TaskFailure) =>
      (await count(
        `UPDATE tasks SET ${unlessLast('$3', '$4')}, run_at = now() + $5 * interval '1 millisecond', updated_at = now()
         WHERE id = $1 AND state = 'processing' AND attempts = $2`,
        [id, attempts, dead ? 'dead' : 'retry', asText(error), inMs],
      )) === 1,
    ...forOperators(postgres),
  };
}

/** Characters of an error that are stored. */
const ERROR_LENGTH = 1_000;

/** The queries of operators. */
function forOperators({ pool }: PostgresStore) {
  return {
    async get(id: number) {
      const { rows } = await pool.query(`SELECT ${COLUMNS} FROM tasks WHERE id = $1`, [id]);
      return rows[0] === undefined ? null : fromRow<Task>(rows[0]);
    },
    /** Newest first. */
    async list(state: TaskState | null, max: number) {
      const where = state === null ? '' : 'WHERE state = $2';
      const { rows } = await pool.query(
        `SELECT ${COLUMNS} FROM tasks ${where} ORDER BY tasks.id DESC LIMIT $1`,
        state === null ? [max] : [max, state],
      );
      return rows.map(fromRow<Task>);
    },
    /** Ends a dead task undone; later ones of its subject follow. @param actor for the audit log @returns null as `revive` */
    async discard(id: number, actor: string, db: Pick<pg.PoolClient, 'query'> = pool) {
      const { rows } = await db.query(
        `WITH discarded AS (
           UPDATE tasks SET state = 'done', last_error = left('discarded by ' || $2 || '; ' || coalesce(last_error, ''), ${ERROR_LENGTH}),
             updated_at = now() WHERE id = $1 AND state = 'dead' RETURNING *
         ), audited AS (
           INSERT INTO audit_pending (actor, action, subject, details)
           SELECT $2, 'task.discarded', 'task ' || id, json_build_object('kind', kind, 'key', key, 'payload', payload)::text FROM discarded
         )
         SELECT ${COLUMNS} FROM discarded`,
        [id, actor],
      );
      return rows[0] === undefined ? null : fromRow<Task>(rows[0]);
    },
    /** Returns a dead task to `waiting`. @returns null when it is not dead or does not exist */
    async revive(id: number, db: Pick<pg.PoolClient, 'query'> = pool) {
      const { rows } = await db.query(
        `UPDATE tasks SET state = 'waiting', run_at = now(), updated_at = now()
         WHERE id = $1 AND state = 'dead' RETURNING ${COLUMNS}`,
        [id],
      );
      return rows[0] === undefined ? null : fromRow<Task>(rows[0]);
    },
    /** Number of tasks in each state except `done`. */
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

/** Removes NUL, which Postgres cannot store in text. */
function asText(error: string): string {
  return error.replaceAll('\0', '').slice(0, ERROR_LENGTH);
}
