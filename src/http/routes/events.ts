/** The stock of a sale as server-sent events. */
import type { RequestHandler, Response } from 'express';
import { limits } from '../../config/limits.ts';
import { type Sale, stateOf } from '../../domain/sale.ts';
import type { SaleTable } from '../../store/postgres/sales.ts';
import { saleEventSchema } from '../answer-schemas.ts';
import { Broadcast } from '../broadcast.ts';
import { openPerAddress } from '../client-limits.ts';
import type { HttpContext } from '../context.ts';
import { events } from '../openapi-responses.ts';
import { ProblemError, unknownSale } from '../problems.ts';
import { tagged } from '../route.ts';

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

export const streamSale = tagged('Sales')('get /sales/{saleId}/events', 'anyone', {
  summary: 'Stream the stock of a sale: server-sent events',
  description:
    'The first event is sent immediately, further ones after each change; the last one is repeated after 5 seconds without a change. A slow client may miss intermediate events but always receives the latest.',
  answers: { 200: events(saleEventSchema, 'A stream; it ends when the service stops') },
  guards: (context) => [admission(context)],
  async handle({ saleId, res }, { saleEvents }) {
    if (!(await saleEvents.listen(saleId, res))) throw unknownSale(saleId);
  },
});

/** Bounds the streams: an address has as many as it may have connections. */
function admission({ saleEvents, clientLimits }: HttpContext): RequestHandler {
  const { addresses, connections: perAddress } = clientLimits;
  const isWithin = openPerAddress(perAddress);
  return (req, res, next) => {
    // HEAD gets the headers only.
    if (req.method === 'HEAD') return res.type('text/event-stream').end();
    if (saleEvents.size >= limits.events.listeners)
      throw tooMany(res, 'busy', 'This process serves the maximum number of streams.');
    if (perAddress > 0 && !isWithin(addresses.of(req), res))
      throw tooMany(res, 'too-many-requests', 'This address has the maximum number of streams.');
    next();
  };
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
  currency: sale.currency,
});

/** `Retry-After` is the longest reconnection delay of a stream. */
function tooMany(res: Response, slug: 'busy' | 'too-many-requests', detail: string): ProblemError {
  res.setHeader('Retry-After', String(Math.ceil((2 * limits.events.retryMs) / 1_000)));
  const help = 'Retry after the delay in Retry-After, or read GET /sales/{saleId}.';
  return new ProblemError(slug, `${detail} ${help}`, { reason: 'too-many-streams' });
}
