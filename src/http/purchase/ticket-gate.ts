/**
 * With AUTH=jwt, a purchase needs a ticket (access/ticket.ts): it says who buys what, and from when on. It costs no round trip.
 *
 *   ticket ──signed by us, for this sale, not expired──▶ the turn has come? ──▶ the customer's rate ──▶ the attempt
 *       └──otherwise: 401 invalid-ticket                   └──no: 409 too-early     └──exceeded: 429
 */
import type { IncomingMessage } from 'node:http';
import type { ClientAddresses } from '../../access/client-address.ts';
import type { Ticket, Tickets } from '../../access/ticket.ts';
import type { TokenBuckets } from '../../access/token-buckets.ts';
import type { StoreClock } from '../../store/late-requests.ts';
import { problemBody, problemReply, type Reply, replyWith } from '../problems.ts';

export interface TicketGate {
  /**
   * @param authorization the header
   * @returns the ticket, or the answer to the request
   */
  ticketOf(authorization: string | undefined, saleId: number): Ticket | Reply;
  /** The address whose share of the admission queue the attempt uses. */
  clientOf(req: IncomingMessage): string;
}

export interface TicketGateContext {
  readonly tickets: Tickets;
  /** Purchase attempts of one customer. */
  readonly attempts: TokenBuckets;
  readonly addresses: ClientAddresses;
  /** That of Postgres, by which all processes issue tickets. Never behind: each accepts a ticket whose turn begins when it is issued. */
  readonly clock: Pick<StoreClock, 'latestMs'>;
  readonly onRefused: (reason: RefusalReason) => void;
}

export type RefusalReason = 'missing' | 'unsigned' | 'other-sale' | 'expired' | 'too-early' | 'customer-rate';

const BEARER = 'bearer ';

export function createTicketGate({
  tickets,
  attempts,
  addresses,
  clock,
  onRefused,
}: TicketGateContext): TicketGate {
  function reasonFor(ticket: Ticket | null, saleId: number, nowMs: number): RefusalReason | null {
    if (ticket === null) return 'unsigned';
    if (ticket.saleId !== saleId) return 'other-sale';
    if (nowMs >= ticket.expiresMs) return 'expired';
    if (!attempts.take(ticket.customer)) return 'customer-rate';
    return nowMs < ticket.notBeforeMs ? 'too-early' : null;
  }

  return {
    clientOf: (req) => addresses.of(req),
    ticketOf(authorization, saleId) {
      const isTicket = authorization?.slice(0, BEARER.length).toLowerCase() === BEARER;
      const ticket = isTicket ? tickets.read(authorization!.slice(BEARER.length)) : null;
      const nowMs = clock.latestMs();
      const reason = isTicket ? reasonFor(ticket, saleId, nowMs) : 'missing';
      if (reason === null) return ticket!;
      onRefused(reason);
      if (reason === 'too-early') return tooEarly(ticket!, nowMs);
      if (reason === 'customer-rate') {
        const detail = 'Too many attempts of this customer. Retry in a second.';
        return replyWith(problemBody('too-many-requests', detail), 1);
      }
      const detail = `Send the header Authorization: Bearer <ticket> with a ticket of POST /sales/${saleId}/tickets.`;
      return problemReply('invalid-ticket', detail, { reason });
    },
  };
}

function tooEarly({ notBeforeMs }: Ticket, nowMs: number): Reply {
  const notBefore = new Date(notBeforeMs).toISOString();
  const problem = problemBody('too-early', `The turn of this ticket begins at ${notBefore}.`, { notBefore });
  return replyWith(problem, Math.ceil((notBeforeMs - nowMs) / 1_000));
}
