/**
 * How the batches of this process share the row of a sale with other processes. Each statement reports the version of the sale and how long
 * it waited for the row.
 *
 *   alone: several batches in flight, none held back
 *     │ another transaction changed the sale between two statements of this process     ▲ it did not, several times in a row
 *     ▼                                                                                 │
 *   beside others: one batch in flight; the next is held back after its end ────────────┘
 *
 * Batches that wait in Postgres for the row are small: what arrives meanwhile is in the next one. So the hold becomes most of what the last
 * batch was held back and then waited, and a statement arrives shortly before the row is free, with all that has arrived until then. The hold
 * replaces a wait, so it delays no order. It follows when the others become slower or faster, and the row does not idle: a statement that
 * did not wait shortens it.
 *
 * The statements of this process on a sale share a connection, so none of them waits for another one's lock.
 */
import { limits } from '../../config/limits.ts';
import type { Placed } from '../../store/postgres/insert-orders.ts';

interface Turns {
  /** Of the sale, after the last statement of this process; null: a shared batch came after it, which does not report it. */
  readonly version: number | null;
  /** Statements in a row without a change by others between them. */
  readonly alone: number;
  readonly holdMs: number;
}

/** By the key of a queue, which is one sale's. */
export interface RowTurns {
  /** Batches in flight at once. */
  inFlight(key: number): number;
  /** See `MicroBatcherOptions.holdMs`. */
  holdMs(key: number): number;
  /** Learns from a statement of this process. */
  note(key: number, placed: Pick<Placed, 'version' | 'waitedMs'>): void;
  /** A shared batch of this process placed orders of a sale. */
  noteShared(saleId: number): void;
}

/** Sales that are kept. */
const MAX_SALES = 1_000;
/** So many statements without a change by others: this process sells alone. */
const ALONE = 4;
/** Part of hold and wait that becomes the next hold. */
const HOLD_SHARE = 0.8;

export function rowTurns(): RowTurns {
  const turns = new Map<number, Turns>();
  return {
    inFlight: (key) => ((turns.get(key)?.alone ?? ALONE) < ALONE ? 1 : limits.commitInFlight),
    holdMs: (key) => turns.get(key)?.holdMs ?? 0,
    note(key, { version, waitedMs }) {
      if (version === null) return void turns.delete(key);
      if (turns.size >= MAX_SALES) turns.clear();
      const last = turns.get(key) ?? { version: version - 1, alone: ALONE, holdMs: 0 };
      const isNext = version === (last.version ?? 0) + 1;
      const alone = last.version === null ? last.alone : isNext ? last.alone + 1 : 0;
      const holdMs = Math.min(HOLD_SHARE * (last.holdMs + (waitedMs ?? 0)), limits.commitHoldMs);
      turns.set(key, { version, alone, holdMs: alone < ALONE ? holdMs : 0 });
    },
    noteShared(saleId) {
      const last = turns.get(saleId);
      if (last !== undefined) turns.set(saleId, { ...last, version: null });
    },
  };
}
