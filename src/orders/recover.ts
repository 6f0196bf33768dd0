/**
 * Settles what dead processes left between the stores.
 *
 * A reservation that is older than any writer's patience belongs to nobody: it is committed, or, when Postgres
 * refuses, given back. Then Redis's count of each sale is compared with Postgres and, when nothing is under way,
 * corrected: a process that died between the two stores can have left units that neither sells.
 *
 * One pass is one call; several processes may make theirs at the same time, since every step is idempotent.
 */
import { limits } from '../config/limits.ts';
import type { Reservation } from '../domain/outcome.ts';
import type { Sale } from '../domain/sale.ts';
import type { Instruments } from '../metrics/instruments.ts';
import type { RedisSales } from '../store/redis-sale.ts';
import type { SaleTable } from '../store/sales.ts';
import type { Strategy } from '../strategies/strategy.ts';
import type { Writer } from './writer.ts';

export interface RecoveryContext {
  readonly strategy: Strategy & { readonly reservations: RedisSales };
  readonly writer: Writer;
  readonly sales: SaleTable;
  readonly instruments: Instruments;
  readonly log: (message: string, details: object) => void;
}

/** What one pass did. */
export interface RecoveryCounts {
  committed: number;
  returned: number;
  /** Left for the next pass, because Postgres did not answer. */
  postponed: number;
  /** Sales whose count in Redis was corrected. */
  corrected: number;
}

/** One pass over all sales that can have reservations. @throws what the stores throw; the next pass goes on. */
export async function recoverOnce(context: RecoveryContext): Promise<RecoveryCounts> {
  const counts: RecoveryCounts = { committed: 0, returned: 0, postponed: 0, corrected: 0 };
  for (const sale of await context.sales.recent()) {
    const abandoned = await context.strategy.reservations.pending(
      sale.id,
      limits.recoverAfterMs,
      limits.recoverBatch,
    );
    await Promise.all(abandoned.map((reservation) => settle(context, reservation, counts)));
    if (await correct(context, sale)) counts.corrected++;
  }
  return counts;
}

async function settle(
  context: RecoveryContext,
  reservation: Reservation,
  counts: RecoveryCounts,
): Promise<void> {
  const { strategy, writer, instruments, log } = context;
  const result = await writer.commit(reservation);
  switch (result.kind) {
    case 'committed': // the writer forgets the reservation
      counts.committed++;
      break;
    case 'existing':
      await strategy.release(reservation, { ownerOrderId: result.order.orderId });
      counts.returned++;
      break;
    case 'refused':
      await strategy.release(reservation, { unitBack: false });
      counts.returned++;
      break;
    default:
      counts.postponed++;
  }
  const { orderId, saleId, userId } = reservation;
  instruments.recovered.inc({ result: result.kind });
  log('settled a reservation that its process had left', { orderId, saleId, userId, result: result.kind });
}

/** @returns whether Redis was changed */
async function correct(
  { strategy, sales, instruments, log }: RecoveryContext,
  listed: Sale,
): Promise<boolean> {
  const { reservations } = strategy;
  const seen = await reservations.observe(listed.id);
  if (seen === null || seen.pending > 0 || seen.remaining === listed.remaining) return false;
  // Read again, after Redis was seen: `correct` refuses when anything happened in Redis since then.
  const sale = await sales.get(listed.id);
  if (sale === null || sale.remaining === seen.remaining) return false;
  if (!(await reservations.correct(sale.id, seen, sale.remaining))) return false;
  const drift = seen.remaining - sale.remaining;
  instruments.driftUnits.inc({ direction: drift > 0 ? 'surplus' : 'missing' }, Math.abs(drift));
  log('corrected Redis to what Postgres has', {
    saleId: sale.id,
    redis: seen.remaining,
    postgres: sale.remaining,
  });
  return true;
}

/**
 * Passes, one after the other, until stopped.
 * @returns stops it, and waits for the pass under way
 */
export function keepRecovering(
  context: RecoveryContext,
  onError: (doing: string, error: unknown) => void,
): () => Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  let stopped = false;
  let pass: Promise<void> = Promise.resolve();

  async function run(): Promise<void> {
    try {
      await recoverOnce(context);
    } catch (error) {
      onError('recover', error);
    }
    if (!stopped) timer = setTimeout(start, limits.recoverEveryMs);
  }
  function start(): void {
    pass = run();
  }
  start();

  return async () => {
    stopped = true;
    clearTimeout(timer);
    await pass;
  };
}
