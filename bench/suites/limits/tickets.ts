/** Purchase tickets for a load: the bench signs them with the service's key before the load begins. */
import { createWriteStream } from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createTickets, serviceKeys } from '../../../src/access/ticket.ts';
import { attemptOf, type RateLoad } from '../../load/rate.ts';

const key = Buffer.alloc(32, 'bench');
const validMs = 3_600_000;
const audience = 'bench';
const tickets = createTickets(serviceKeys([key], audience));

/**
 * The service with AUTH=jwt. The whole load comes from one address, so its limits are high, but still counted. The rate of each
 * customer keeps its default. No issuer runs, because a purchase never contacts it.
 */
export const ticketEnv = {
  ...{ AUTH: 'jwt', AUTH_JWKS_URL: 'http://127.0.0.1:9/keys', AUTH_ISSUER: 'bench', AUTH_AUDIENCE: audience },
  ...{ TICKET_SECRETS: key.toString('base64'), ADDRESS_RATE: '1000000', ADDRESS_CONNECTIONS: '1000000' },
};

/** A customer's ticket, valid from a minute ago. */
export function ticketFor(saleId: number, customer: string): string {
  const notBeforeMs = Date.now() - 60_000;
  return tickets.issue({ saleId, customer, notBeforeMs, expiresMs: notBeforeMs + validMs });
}

/** Tickets for each second of load, about twice the capacity of one process. Further attempts have no ticket and are refused. */
const perSecond = 25_000;

/** Writes a file for `RateLoad.tickets`. @returns its path */
export async function writeTickets(folder: string, load: RateLoad): Promise<string> {
  const path = join(folder, `tickets-${load.prefix}.txt`);
  const attempt = attemptOf(load);
  const count = Math.ceil((load.durationMs! / 1_000) * perSecond);
  function* lines() {
    for (let n = 1; n <= count; ) {
      const part: string[] = [];
      for (; n <= count && part.length < 1_000; n++) {
        const { saleId, userId } = attempt(n);
        part.push(`${ticketFor(saleId, userId)}\n`);
      }
      yield part.join('');
    }
  }
  await pipeline(lines(), createWriteStream(path));
  return path;
}
