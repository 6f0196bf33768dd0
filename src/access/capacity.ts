/**
 * How many attempts a second all processes of the service can serve, for the waiting room. Each process measures what it serves
 * and writes it to Postgres, every second, and adds up what the others wrote there lately, by the clock of Postgres.
 *
 * While attempts are queued, the load shedder's limit shows what the stores sustain. While none is queued, the service is faster
 * than its customers; if they took most of what was assumed, a little more is assumed.
 */
import { randomUUID } from 'node:crypto';
import type { LoadShedder } from '../concurrency/load-shedding.ts';
import { repeatedly } from '../concurrency/periodic.ts';
import { limits } from '../config/limits.ts';
import type { PostgresStore } from '../store/postgres/pool.ts';

export interface Capacity {
  /** Attempts a second, of all processes. */
  readonly perSecond: number;
  stop(): Promise<void>;
}

/** A figure is from the future when another server, whose clock is behind, has taken over. */
const IS_OLD = 'abs(extract(epoch FROM clock_timestamp() - noted_at)) > $3 / 1000.0';
/** Two processes whose figures are old could each hold its own and wait for the other's: SKIP LOCKED. */
const SHARE = `
  WITH noted AS (
    INSERT INTO capacities (process, per_second, noted_at) VALUES ($1, $2, clock_timestamp())
    ON CONFLICT (process) DO UPDATE SET per_second = excluded.per_second, noted_at = excluded.noted_at
  ), old AS MATERIALIZED (
    SELECT process FROM capacities WHERE process <> $1 AND ${IS_OLD} FOR UPDATE SKIP LOCKED
  ), deleted AS (
    DELETE FROM capacities USING old WHERE capacities.process = old.process
  )
  SELECT coalesce(sum(per_second), 0) AS others FROM capacities WHERE process <> $1 AND NOT ${IS_OLD}`;

/** @param onError receives failures of Postgres; the last known figures stay in use */
export function shareCapacity(
  { pool }: Pick<PostgresStore, 'pool'>,
  shedder: LoadShedder,
  onError: (error: unknown) => void,
): Capacity {
  const self = randomUUID();
  let { perSecond, served, queuedEver } = shedder.state;
  let measuredMs = performance.now();
  let others = 0;

  /** What this process can serve, since the last call. */
  function measure(): void {
    const nowMs = performance.now();
    const now = shedder.state;
    const rate = ((now.served - served) / (nowMs - measuredMs)) * 1_000;
    const { capacityGrowth, capacityUsed } = limits.tickets;
    if (now.queuedEver > queuedEver) perSecond = now.perSecond;
    else if (rate > capacityUsed * perSecond) perSecond *= capacityGrowth;
    ({ served, queuedEver } = now);
    measuredMs = nowMs;
  }

  async function exchange(): Promise<void> {
    measure();
    const values = [self, perSecond, limits.tickets.capacityMaxAgeMs];
    const { rows } = await pool.query<{ others: number }>({ name: 'share-capacity', text: SHARE, values });
    others = rows[0]!.others;
  }

  const stop = repeatedly(limits.tickets.capacityEveryMs, () => exchange().catch(onError));
  return {
    get perSecond() {
      return perSecond + others;
    },
    async stop() {
      await stop();
      await pool.query('DELETE FROM capacities WHERE process = $1', [self]).catch(() => {});
    },
  };
}
