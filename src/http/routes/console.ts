/** Data of the console: the service's activity as events, computed once for all viewers, and the audit of a sale. */
import { Router } from 'express';
import { limits } from '../../config/limits.ts';
import type { Sale } from '../../domain/sale.ts';
import { activityBetween, type ConsoleEvent, type Reading, readMetrics } from '../../metrics/activity.ts';
import type { Degradation } from '../../metrics/loop-health.ts';
import { compareSale, type ReconcileContext } from '../../orders/drift.ts';
import type { Administration } from '../admin.ts';
import { Broadcast } from '../broadcast.ts';
import { busy } from '../problems.ts';
import { parse } from '../requests.ts';
import { saleIdSchema } from '../schemas.ts';
import { unknownSale } from './sales.ts';

export interface ConsoleContext {
  /** The metrics of all processes, as Prometheus reads them. */
  readonly metrics: () => Promise<string>;
  readonly degraded: () => readonly Degradation[];
  /** `ok`, or the error, by store. */
  readonly stores: () => Promise<Readonly<Record<string, string>>>;
  readonly reconcile: ReconcileContext;
  readonly stopping: AbortSignal;
  readonly onReadError: (error: unknown) => void;
}

const EVERYTHING = 'console';

export function consoleRoutes(context: ConsoleContext, admin: Administration): Router {
  const { reconcile, stopping, onReadError } = context;
  const running = new Set<number>();
  const read = activityReader(context);
  const streams = new Broadcast<typeof EVERYTHING>({
    everyMs: limits.events.consoleEveryMs,
    read: async () => ({ values: new Map([[EVERYTHING, await read()]]), nowMs: Date.now() }),
    onError: onReadError,
  });
  stopping.addEventListener('abort', () => streams.close());

  const router = Router();
  router.get('/console/events', ...admin.authorize, async (req, res) => {
    if (req.method === 'HEAD') return void res.type('text/event-stream').end();
    await streams.listen(EVERYTHING, res);
  });

  router.get('/sales/:saleId/audit', ...admin.authorize, async (req, res) => {
    const saleId = parse(saleIdSchema, req.params.saleId, 'saleId');
    const sale = saleId > limits.maxSaleId ? null : await reconcile.sales.get(saleId);
    if (sale === null) throw unknownSale(saleId);
    if (running.has(saleId)) throw busy('audit-running', `An audit of sale ${saleId} is running.`);
    running.add(saleId);
    try {
      const { differences: found, isMirrored } = await compareSale(reconcile, sale);
      // Not a difference between the stores, so `npm run reconcile` has nothing to say about it.
      const differences = [...oversell((await reconcile.sales.get(saleId)) ?? sale), ...found];
      const auditedAt = new Date().toISOString();
      res.json({ saleId, agrees: differences.length === 0, differences, isMirrored, auditedAt });
    } finally {
      running.delete(saleId);
    }
  });
  return router;
}

const oversell = ({ sold, stock }: Sale): readonly string[] =>
  sold > stock ? [`Oversold by ${sold - stock}: ${sold} are sold of a stock of ${stock}`] : [];

/** @returns a function that reads the activity since its last call; its first call reports none */
function activityReader({ metrics, degraded, stores }: ConsoleContext): () => Promise<ConsoleEvent> {
  let last: { readonly reading: Reading; readonly atMs: number } | null = null;
  return async () => {
    const [text, state] = await Promise.all([metrics(), stores()]);
    const reading = readMetrics(text);
    const atMs = performance.now();
    // After a pause without viewers, rates would be averages over minutes.
    const isRecent = last !== null && atMs - last.atMs < 5 * limits.events.consoleEveryMs;
    const before = isRecent ? last! : { reading, atMs: atMs - limits.events.consoleEveryMs };
    last = { reading, atMs };
    const seconds = (atMs - before.atMs) / 1_000;
    return { ...activityBetween(before.reading, reading, seconds), stores: state, degraded: degraded() };
  };
}
