/**
 * The turns of the waiting room, in Postgres: one row for each customer, and one for each sale, whose lock orders its customers.
 *
 *   take ──▶ queue, in the order of arrival ──▶ one statement and one commit for all who wait ──▶ their turns
 *
 * A process has one statement for all sales in flight, and one for each sale that has its batch: see `sharedBatches`. More of them would
 * only wait for the sale's row.
 */
import { type NotProcessed, SHARED, sharedBatches } from '../concurrency/micro-batcher.ts';
import { limits } from '../config/limits.ts';
import { FailureError } from '../domain/failure.ts';
import type { PostgresStore } from '../store/postgres/pool.ts';
import type { TurnRequest, TurnStore } from './waiting-room.ts';

export interface Turns extends TurnStore {
  /** Deletes some of the turns whose tickets have expired, and waiting rooms that no customer has entered for long. @returns how many turns */
  deleteExpired(): Promise<number>;
}

type Pool = PostgresStore['pool'];
const NOW_MS = 'extract(epoch FROM now())::float8 * 1000';

export function turnsIn({ pool }: Pick<PostgresStore, 'pool'>): Turns {
  const { turnBatch, maxQueuedTurns } = limits.tickets;
  const { submit } = sharedBatches<TurnRequest, number | NotProcessed>({
    name: 'turns',
    keyOf: ({ saleId }) => saleId,
    work: (key, requests, answer) => takeTurns(pool, requests, key === SHARED, answer),
    ...{ maxBatch: turnBatch, leastBatch: turnBatch, inFlight: () => 1 },
    ...{ maxQueued: maxQueuedTurns, waitMs: limits.postgresConnectMs },
    onBatch: () => {},
    rejected: (reason) => reason,
    isMemberError: () => false,
  });
  return {
    async take(request) {
      const turn = await submit(request);
      if (typeof turn === 'number') return turn;
      throw new FailureError('postgres', 'not-sent', turn, 'too many customers wait for a turn');
    },
    async deleteExpired() {
      // A statement each: a turn is taken with the room locked first, and both in one could end in a deadlock.
      await pool.query(`DELETE FROM waiting_rooms WHERE expires_ms <= ${NOW_MS}`);
      const { rowCount } = await pool.query(
        `WITH old AS MATERIALIZED (
           SELECT sale_id, user_id FROM turns WHERE expires_ms <= ${NOW_MS} ORDER BY expires_ms LIMIT $1 FOR UPDATE SKIP LOCKED
         )
         DELETE FROM turns USING old WHERE turns.sale_id = old.sale_id AND turns.user_id = old.user_id`,
        [limits.retention.batch],
      );
      return rowCount!;
    },
  };
}

/** @param skipsLocked answers no request whose sale's room is locked */
async function takeTurns(
  pool: Pool,
  requests: readonly TurnRequest[],
  skipsLocked: boolean,
  answer: (request: TurnRequest, turn: number) => void,
): Promise<void> {
  const bySale = requests.toSorted((a, b) => a.saleId - b.saleId); // stable: those of a sale keep their order
  const column = <Key extends keyof TurnRequest>(key: Key) => bySale.map((request) => request[key]);
  const { rows } = await pool.query<{ turns: readonly (number | null)[] }>({
    name: 'take-turns',
    text: 'SELECT take_turns($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS turns',
    values: [
      ...[column('saleId'), column('customer'), column('drawnMs'), column('nowMs')],
      ...[column('startMs'), column('spreadMs'), column('validMs')],
      ...[requests[0]!.perSecond, limits.tickets.keepMs, skipsLocked],
    ],
  });
  for (const [n, turn] of rows[0]!.turns.entries()) if (turn !== null) answer(bySale[n]!, turn);
}
