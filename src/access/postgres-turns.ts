/** The turns of the waiting room in Postgres: one row for each customer, and one for each sale, whose lock orders its customers. */
import { limits } from '../config/limits.ts';
import type { PostgresStore } from '../store/postgres/pool.ts';
import type { TurnStore } from './waiting-room.ts';

export interface PostgresTurns extends TurnStore {
  /** Deletes some of the turns whose tickets have expired, and waiting rooms that nobody has entered for long. @returns how many turns */
  deleteExpired(): Promise<number>;
}

const NOW_MS = 'extract(epoch FROM now())::float8 * 1000';

export function postgresTurns({ pool }: Pick<PostgresStore, 'pool'>): PostgresTurns {
  return {
    async take({ saleId, customer, nowMs, drawnMs, startMs, spreadMs, perSecond, validMs, keepMs }) {
      const { rows } = await pool.query<{ turn: number }>({
        name: 'take-turn',
        text: 'SELECT take_turn($1, $2, $3, $4, $5, $6, $7, $8, $9) AS turn',
        values: [saleId, customer, nowMs, drawnMs, startMs, spreadMs, perSecond, validMs, keepMs],
      });
      return rows[0]!.turn;
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
