/** The stock of a sale as server-sent events. */
import type { RequestHandler, Response } from 'express';
import { Router } from 'express';
import { limits } from '../../config/limits.ts';
import { type Sale, stateOf } from '../../domain/sale.ts';
import type { SaleTable } from '../../store/postgres/sales.ts';
import { Broadcast } from '../broadcast.ts';
import type { HttpContext } from '../context.ts';
import { ProblemError } from '../problems.ts';
import { parse } from '../requests.ts';
import { saleIdSchema } from '../schemas.ts';
import { unknownSale } from './sales.ts';

/** Shared by all servers of a process. @param stopping ends the streams @param onError receives errors of reads */
export function openSaleEvents(
  sales: Pick<SaleTable, 'watch'>,
  stopping: AbortSignal,
  onError: (error: unknown) => void,
): Broadcast<number> {
  const streams = new Broadcast<number>({
    everyMs: limits.events.salesEveryMs,
    async read(saleIds) {
      const { sales: found, nowMs } = await sales.watch(saleIds);
      return { values: new Map(found.map((sale) => [sale.id, eventOf(sale, nowMs)])), nowMs };
    },
    onError,
  });
  stopping.addEventListener('abort', () => streams.close());
  return streams;
}

export function eventRoutes(context: Pick<HttpContext, 'saleEvents' | 'clientLimits'>): Router {
  const streams = context.saleEvents;
  // An address has as many streams as it may have connections.
  const { addresses, connections: perAddress } = context.clientLimits;
  const ofAddress = new Map<string, number>();

  const admit: RequestHandler = (req, res, next) => {
    // HEAD gets the headers only.
    if (req.method === 'HEAD') return res.type('text/event-stream').end();
    if (streams.size >= limits.events.listeners)
      throw tooMany(res, 'busy', 'This process serves the maximum number of streams.');
    if (perAddress > 0) {
      const address = addresses.of(req);
      const open = ofAddress.get(address) ?? 0;
      if (open >= perAddress)
        throw tooMany(res, 'too-many-requests', 'This address has the maximum number of streams.');
      ofAddress.set(address, open + 1);
      res.on('close', () => {
        const left = ofAddress.get(address)! - 1;
        if (left === 0) ofAddress.delete(address);
        else ofAddress.set(address, left);
      });
    }
    next();
  };

  const router = Router();
  router.get('/sales/:saleId/events', admit, async (req, res) => {
    const saleId = parse(saleIdSchema, req.params.saleId, 'saleId');
    const isKnown = saleId <= limits.maxSaleId && (await streams.listen(saleId, res));
    if (!isKnown) throw unknownSale(saleId);
  });
  return router;
}

const eventOf = (sale: Sale, nowMs: number) => ({
  state: stateOf(sale, nowMs),
  stock: sale.stock,
  sold: sale.sold,
  remaining: sale.remaining,
  startsAt: sale.startsAt,
  endsAt: sale.endsAt,
  paused: sale.paused,
  maxPerOrder: sale.maxPerOrder,
  name: sale.name,
  priceCents: sale.priceCents,
});

/** `Retry-After` is the longest reconnection delay of a stream. */
function tooMany(res: Response, slug: 'busy' | 'too-many-requests', detail: string): ProblemError {
  res.setHeader('Retry-After', String(Math.ceil((2 * limits.events.retryMs) / 1_000)));
  const help = 'Retry after the delay in Retry-After, or read GET /sales/{saleId}.';
  return new ProblemError(slug, `${detail} ${help}`, { reason: 'too-many-streams' });
}
