/** Tickets: with AUTH=jwt, what a customer needs to buy. */
import { type RequestHandler, Router } from 'express';
import type { BotCheck } from '../../access/bot-check.ts';
import type { SharedLimits } from '../../access/shared-limits.ts';
import type { Tickets } from '../../access/ticket.ts';
import type { WaitingRoom } from '../../access/waiting-room.ts';
import { limits } from '../../config/limits.ts';
import { type Sale, stateOf } from '../../domain/sale.ts';
import type { UnpaidOrders } from '../../store/postgres/orders.ts';
import { type Callers, tooMany } from '../callers.ts';
import { ProblemError } from '../problems.ts';
import type { Reads } from '../reads.ts';
import { jsonBody, optionalBody, parse } from '../requests.ts';
import { saleIdSchema, ticketRequestSchema } from '../schemas.ts';

export interface TicketContext {
  readonly tickets: Tickets;
  readonly waitingRoom: WaitingRoom;
  /** How long a ticket of a sale is valid from its turn on. */
  readonly validMs: (sale: Sale) => number;
  readonly botCheck: BotCheck;
  readonly sharedLimits: SharedLimits;
  readonly reads: Pick<Reads, 'sales' | 'orders'>;
  readonly onIssued: () => void;
  readonly onRefused: (reason: string) => void;
}

export function ticketRoutes(context: TicketContext, callers: Callers): Router {
  const { tickets, waitingRoom, validMs, botCheck, sharedLimits, onIssued } = context;
  const { sales, orders } = context.reads;
  const router = Router();

  const issue: RequestHandler = async (req, res) => {
    const saleId = parse(saleIdSchema, req.params.saleId, 'saleId');
    const { proof = null } = parse(ticketRequestSchema, optionalBody(req), 'body');
    const { customer } = await callers.of(req, res);
    if (customer === null) throw new ProblemError('forbidden', 'A ticket is issued to a customer only.');
    const waitS = await sharedLimits.use('ticket', customer);
    if (waitS !== null) throw tooMany(res, waitS, 'Too many requests for a ticket.');

    const found = saleId > limits.maxSaleId ? null : await sales.getWithSeed(saleId);
    if (found === null) throw new ProblemError('unknown-sale', `Sale ${saleId} does not exist.`);
    const { sale, seed, nowMs } = found;
    if (stateOf(sale, nowMs) === 'ended')
      throw new ProblemError('sale-not-open', `Sale ${saleId} has ended.`, { reason: 'ended' });
    if (sale.remaining <= 0) throw new ProblemError('sold-out', `Every unit of sale ${saleId} is sold.`);

    const challenge = await botCheck.check({ saleId, customer, proof }, nowMs);
    if (challenge !== null) {
      const detail = 'Repeat the request with a proof of work: see docs/reference/tickets.md.';
      throw new ProblemError('proof-required', detail, challenge);
    }
    const unpaid = await orders.unpaidOf(customer, limits.tickets.unpaidWithinMs);
    const unpaidS = waitOf(unpaid, nowMs);
    if (unpaidS !== null) {
      context.onRefused('unpaid-orders');
      throw tooMany(res, unpaidS, 'Too many reservations of this customer were not paid.');
    }

    const notBeforeMs = await waitingRoom.turn(sale, seed, customer, nowMs);
    const expiresMs = notBeforeMs + validMs(sale);
    onIssued();
    res.status(201).json({
      ticket: tickets.issue({ saleId, customer, notBeforeMs, expiresMs }),
      notBefore: new Date(notBeforeMs).toISOString(),
      expiresAt: new Date(expiresMs).toISOString(),
    });
  };
  router.post('/sales/:saleId/tickets', ...jsonBody(limits.bodyBytes), issue);
  return router;
}

/** After how many seconds a customer may reserve again; null: now. @param nowMs by the clock of Postgres, which closed the orders */
export function waitOf({ pending, closed, lastClosedAt }: UnpaidOrders, nowMs: number): number | null {
  const { unpaid, unpaidClosed, unpaidWaitMs, unpaidWithinMs } = limits.tickets;
  if (pending >= unpaid) return Math.ceil(unpaidWaitMs / 1_000);
  if (closed <= unpaidClosed || lastClosedAt === null) return null;
  const waitMs = unpaidWaitMs * 2 ** (closed - unpaidClosed - 1);
  const untilMs = lastClosedAt.getTime() + Math.min(waitMs, unpaidWithinMs); // after that, it does not count
  return untilMs > nowMs ? Math.ceil((untilMs - nowMs) / 1_000) : null;
}
