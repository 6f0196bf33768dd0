/**
 * How Redis hears of units that Postgres returned or took again; and of those that an operator added: store/postgres/restock-moves.ts.
 *
 *   (the transaction that closes or revives an order writes a move) ──▶ waiting ──told to Redis──▶ deleted
 *                                     ▲        └──no answer, or the process died: it stays──┘
 *
 * Telling Redis twice changes nothing the second time (lua/sale/apply-change.lua), so a move is deleted after it was told and not
 * before. Moves of one order are told in their order. A sale that is not in Redis is opened from Postgres, which has
 * the change; a move that meets none is kept for a while, for an opening that had begun before the change.
 */
import type pg from 'pg';
import { limits } from '../config/limits.ts';
import type { MirrorChange } from '../domain/order.ts';
import type { BackgroundHealth } from '../metrics/background.ts';
import { inTransaction, type PostgresStore } from '../store/postgres/pool.ts';
import { tellRestocks } from '../store/postgres/restock-moves.ts';
import { saleTable } from '../store/postgres/sales.ts';
import { isUnforeseen } from '../store/redis/connection.ts';
import type { SaleMirror } from '../store/redis/sale-mirror.ts';

export interface OutboxRelay {
  /**
   * Tells Redis of the moves of these orders, or of the oldest ones of all. What cannot be told now stays for a later
   * call; never throws for that.
   * @returns how many were told
   */
  tell(orderIds?: readonly string[]): Promise<number>;
  /** Loads a sale into Redis unless it is there. Never throws. */
  load(saleId: number): Promise<void>;
  /**
   * Takes a free unit off in Redis, for an order that is about to get it in Postgres. Never throws.
   * @returns false: none is free; null: Redis cannot be asked, or does not have the sale
   */
  take(saleId: number): Promise<boolean | null>;
  /** Puts one back that was taken for nothing. Never throws: what Redis does not hear, recovery corrects. */
  putBack(saleId: number): Promise<void>;
}

export interface OutboxRelayContext {
  readonly postgres: PostgresStore;
  readonly mirror: SaleMirror;
  /** Its loops `unit-moves` and `restock-moves`. */
  readonly background: BackgroundHealth;
  readonly onError: (doing: string, error: unknown) => void;
}

interface Row extends MirrorChange {
  readonly id: string;
  readonly old: boolean;
}

// Another process's moves are skipped, and of one order the first comes first. ORDER BY and LIMIT leave the planner one
// way to find it: a plan that is made while the table is empty is kept.
const pick = (
  which: string,
) => `SELECT id, order_id AS "orderId", sale_id AS "saleId", user_id AS "userId", direction,
    created_at < clock_timestamp() - make_interval(secs => $2 / 1000.0) AS old
  FROM unit_moves AS m
  WHERE ${which} AND id = (SELECT e.id FROM unit_moves AS e WHERE e.order_id = m.order_id ORDER BY e.id LIMIT 1)
  ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED`;
const OLDEST = { name: 'pick-oldest-moves', text: pick('sale_id <> ALL($3::int[])') };
const OF_ORDERS = { name: 'pick-moves', text: pick('order_id = ANY($3::uuid[])') };

const TELL = 'tell redis of units';

export function createOutboxRelay({
  postgres,
  mirror,
  background,
  onError,
}: OutboxRelayContext): OutboxRelay {
  const health = background.loop('unit-moves');
  const restocks = { postgres, mirror, health: background.loop('restock-moves') };

  /** @returns whether Redis has it, or will read it in Postgres; or why it cannot be asked now */
  async function told(move: Row): Promise<boolean | { readonly away: unknown }> {
    const sale = `sale ${move.saleId}`;
    try {
      const done = (await mirror.applyChange(move)) || move.old;
      health.succeeded(sale);
      return done;
    } catch (error) {
      if (!isUnforeseen(error)) return { away: error };
      // A key of the sale has another type: the others' moves go first.
      health.failed(sale, error);
      return false;
    }
  }

  async function tellIn(client: pg.PoolClient, orderIds: readonly string[] | undefined): Promise<number> {
    const bounds = [limits.outboxBatch, limits.outboxKeepMs];
    const query =
      orderIds === undefined
        ? { ...OLDEST, values: [...bounds, health.backingOff('sale')] }
        : { ...OF_ORDERS, values: [...bounds, orderIds] };
    const { rows } = await client.query<Row>(query);
    const results = await Promise.all(rows.map(told));
    const ids = rows.flatMap(({ id }, i) => (results[i] === true ? [id] : []));
    if (ids.length > 0) await client.query('DELETE FROM unit_moves WHERE id = ANY($1)', [ids]);
    const failed = results.find((result) => typeof result === 'object');
    if (failed === undefined) health.succeeded(TELL);
    else health.failed(TELL, failed.away);
    return ids.length;
  }

  return {
    async load(saleId) {
      try {
        if ((await mirror.snapshot(saleId)) !== null) return;
        const sale = await saleTable(postgres).get(saleId);
        if (sale !== null) await mirror.load(sale);
      } catch (error) {
        onError('load-sale', error);
      }
    },
    async take(saleId) {
      try {
        const taken = await mirror.restock(saleId, -1);
        return taken === null ? null : taken !== 0;
      } catch (error) {
        onError('take-unit', error);
        return null;
      }
    },
    async putBack(saleId) {
      try {
        await mirror.restock(saleId, 1);
      } catch (error) {
        onError('return-unit', error);
      }
    },
    async tell(orderIds) {
      if (orderIds?.length === 0) return 0;
      if (orderIds === undefined) await tellRestocks(restocks);
      try {
        return await inTransaction(postgres.pool, async (client) => ({
          commit: true,
          value: await tellIn(client, orderIds),
        }));
      } catch (error) {
        health.failed(TELL, error);
        return 0;
      }
    },
  };
}
