/**
 * How Redis hears of units that an operator added in Postgres.
 *
 *   (the statement that adds them writes a move) ──▶ waiting ──told to Redis──▶ deleted
 *                          ▲        └──no answer, or the process died: it stays──┘
 *
 * Telling Redis twice changes nothing the second time: it keeps the numbers of those that it was told (lua/sale/restock.lua). A
 * sale that is opened meanwhile has the units from Postgres, and the numbers with them (lua/sale/load.lua); a move that meets no
 * sale in Redis is kept for a while, for an opening that had begun before the restock.
 */
import { limits } from '../../config/limits.ts';
import type { LoopHealth } from '../../metrics/background.ts';
import { isUnforeseen } from '../redis/connection.ts';
import type { SaleMirror } from '../redis/sale-mirror.ts';
import { inTransaction, type PostgresStore } from './pool.ts';

export interface RestockMovesContext {
  readonly postgres: PostgresStore;
  readonly mirror: SaleMirror;
  readonly health: Pick<LoopHealth, 'failed' | 'succeeded' | 'backingOff'>;
}

interface Row {
  readonly id: string;
  readonly saleId: number;
  readonly units: number;
  readonly old: boolean;
}

const PICK = {
  name: 'pick-restock-moves',
  text: `SELECT id, sale_id AS "saleId", units, created_at < clock_timestamp() - make_interval(secs => $2 / 1000.0) AS old
    FROM restock_moves WHERE sale_id <> ALL($3::int[]) AND ($4::int IS NULL OR sale_id = $4)
    ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED`,
};

const TELL = 'tell redis of restocks';

/**
 * Tells Redis what it has not heard. What cannot be told now stays for a later call; never throws for that.
 * @param saleId of this sale alone
 */
export async function tellRestocks(
  { postgres, mirror, health }: RestockMovesContext,
  saleId: number | null = null,
): Promise<void> {
  let away: unknown = null;

  /** @returns whether Redis has it, or will read it in Postgres */
  async function told(move: Row): Promise<boolean> {
    const sale = `sale ${move.saleId}`;
    try {
      const done = (await mirror.restock(move.saleId, move.units, move.id)) !== null || move.old;
      health.succeeded(sale);
      return done;
    } catch (error) {
      // Refused: a key of this sale has another type. The others' moves go first, as in orders/outbox-relay.ts.
      if (isUnforeseen(error)) health.failed(sale, error);
      else away = error;
      return false;
    }
  }

  try {
    await inTransaction(postgres.pool, async (client) => {
      const values = [limits.outboxBatch, limits.outboxKeepMs, health.backingOff('sale'), saleId];
      const { rows } = await client.query<Row>({ ...PICK, values });
      const done = await Promise.all(rows.map(async (row) => ((await told(row)) ? row.id : null)));
      const ids = done.filter((id) => id !== null);
      if (ids.length > 0) await client.query('DELETE FROM restock_moves WHERE id = ANY($1)', [ids]);
      return { commit: true, value: undefined };
    });
  } catch (error) {
    away = error;
  }
  if (away === null) health.succeeded(TELL);
  else health.failed(TELL, away);
}
