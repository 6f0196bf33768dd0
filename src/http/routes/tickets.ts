/** Tickets: with AUTH=jwt, what a customer needs to buy. */
import { limits } from '../../config/limits.ts';
import { stateOf } from '../../domain/sale.ts';
import type { UnpaidOrders } from '../../store/postgres/orders.ts';
import type { SaleGroups } from '../../store/postgres/sale-groups.ts';
import { ticketSchema } from '../answer-schemas.ts';
import { tooMany } from '../callers.ts';
import { json } from '../openapi-responses.ts';
import { ProblemError, unknownSale } from '../problems.ts';
import { invalidCode } from '../purchase/listener.ts';
import { tagged } from '../route.ts';
import { ticketRequestSchema } from '../schemas.ts';

export const createTicket = tagged('Orders')('post /sales/{saleId}/tickets', 'customer', {
  summary: 'Get a ticket, with AUTH=jwt',
  description:
    'A purchase needs it. Until the lottery of the sale ends the turn is drawn by lot; later it is the next free one. The turn of a customer whose group may buy earlier begins with `opensAt` of the group. A repeat returns the same turn until the ticket expires.',
  body: ticketRequestSchema,
  mayOmitBody: true,
  answers: { 201: json(ticketSchema, 'The ticket') },
  problems: ['forbidden', 'invalid-code', 'not-found', 'proof-required', 'sold-out', 'sale-not-open'],
  isServed: ({ ticketing }) => ticketing !== null,
  async handle({ saleId, body, caller, res }, { ticketing, reads, groups, service }) {
    const { code, proof = null } = body;
    const { customer } = caller;
    const { tickets, waitingRoom, validMs, botCheck, sharedLimits } = ticketing!;
    const { refusals, ticketsIssued } = service.instruments;
    if (customer === null) throw new ProblemError('forbidden', 'A ticket is issued to a customer only.');
    const waitS = await sharedLimits.use('ticket', customer);
    if (waitS !== null) throw tooMany(res, waitS, 'Too many requests for a ticket.');

    const found = saleId > limits.maxSaleId ? null : await reads.sales.getWithSeed(saleId);
    if (found === null) throw unknownSale(saleId);
    const { sale, seed, nowMs } = found;
    if (stateOf(sale, nowMs) === 'ended')
      throw new ProblemError('sale-not-open', `Sale ${saleId} has ended.`, { reason: 'ended' });
    if (sale.remaining <= 0) throw new ProblemError('sold-out', `Every unit of sale ${saleId} is sold.`);

    const challenge = await botCheck.check({ saleId, customer, proof }, nowMs);
    if (challenge !== null) {
      const detail = 'Repeat the request with a proof of work: see docs/reference/tickets.md.';
      throw new ProblemError('proof-required', detail, challenge);
    }
    const unpaid = await reads.orders.unpaidOf(customer, limits.tickets.unpaidWithinMs);
    const unpaidS = waitOf(unpaid, nowMs);
    if (unpaidS !== null) {
      refusals.inc({ reason: 'unpaid-orders' });
      throw tooMany(res, unpaidS, 'Too many reservations of this customer were not paid.');
    }

    const startsMs = sale.startsAt === null ? nowMs : Date.parse(sale.startsAt);
    let opensMs: number | null = null;
    if (nowMs < startsMs)
      opensMs =
        code === undefined
          ? await reads.groups.opensFor(saleId, caller.groups ?? [])
          : await opensBy(groups, saleId, customer, code);
    const earlyMs = Math.max(opensMs ?? Number.POSITIVE_INFINITY, nowMs);
    const isEarly = earlyMs < startsMs;
    const notBeforeMs = isEarly ? earlyMs : await waitingRoom.turn(sale, seed, customer, nowMs);
    const expiresMs = notBeforeMs + validMs(sale);
    ticketsIssued.inc();
    res.status(201).json({
      ticket: tickets.issue({ saleId, customer, notBeforeMs, expiresMs, ...(isEarly && { isEarly }) }),
      notBefore: new Date(notBeforeMs).toISOString(),
      expiresAt: new Date(expiresMs).toISOString(),
    });
  },
});

/** @returns null: the sale has started since. @throws ProblemError for a code that does not open the sale to the customer */
async function opensBy(
  groups: Pick<SaleGroups, 'present'>,
  saleId: number,
  customer: string,
  code: string,
): Promise<number | null> {
  const presented = await groups.present(saleId, customer, code);
  if (presented.kind === 'opens') return presented.opensMs;
  if (presented.kind === 'ignored') return null;
  const { reason } = presented;
  throw new ProblemError('invalid-code', invalidCode(saleId, reason), { reason });
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
