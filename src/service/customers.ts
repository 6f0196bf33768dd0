/**
 * The composition of what stands between customers on the internet and the service: who they are, their tickets, and how much each
 * of them may ask. `service.ts` uses it. With AUTH=none callers are trusted, and there are no tickets.
 */

import { randomBytes } from 'node:crypto';
import { acceptEverybody, proofOfWork } from '../access/bot-check.ts';
import { shareCapacity } from '../access/capacity.ts';
import { clientAddresses } from '../access/client-address.ts';
import { sharedLimits } from '../access/shared-limits.ts';
import { createTickets, serviceKeys } from '../access/ticket.ts';
import { tokenBuckets } from '../access/token-buckets.ts';
import { turnsIn } from '../access/turns.ts';
import { createWaitingRoom, type WaitingRoom } from '../access/waiting-room.ts';
import type { LoadShedder } from '../concurrency/load-shedding.ts';
import { repeatedly, untilNone } from '../concurrency/periodic.ts';
import type { Config } from '../config/env.ts';
import { limits } from '../config/limits.ts';
import type { Sale } from '../domain/sale.ts';
import type { AdminTokens } from '../http/admin.ts';
import { type Callers, createCallers } from '../http/callers.ts';
import type { ClientLimits } from '../http/client-limits.ts';
import type { HttpContext } from '../http/context.ts';
import { createTicketGate } from '../http/purchase/ticket-gate.ts';
import type { Instruments } from '../metrics/instruments.ts';
import type { Core, Reports } from './core.ts';

export interface CustomersContext extends Pick<Core, 'postgres' | 'redis'> {
  readonly config: Config;
  readonly shedder: LoadShedder;
  readonly reports: Reports;
  readonly warn: (message: string) => void;
}

export type Customers = Pick<HttpContext, 'ticketing'> & {
  /** Callers for one server. @param adminTokens that it accepts; null: none */
  callersWith(adminTokens: AdminTokens | null): Callers;
  readonly clientLimits: ClientLimits;
  stop(): Promise<unknown>;
};

export async function openCustomers(context: CustomersContext): Promise<Customers> {
  const { config, redis, reports, warn } = context;
  const { instruments, onError } = reports;
  const onRefused = (reason: string) => instruments.refusals.inc({ reason });
  const shared = sharedLimits(redis, onRefused);
  const onUnrenewed = (error: unknown) => onError('renew-issuer-keys', error);
  // Its library is loaded only where tokens are checked.
  const identity =
    config.auth === null
      ? null
      : (await import('../access/identity.ts')).createIdentity(config.auth, onUnrenewed);
  const callersWith = (adminTokens: AdminTokens | null) =>
    createCallers({ adminTokens, identity, sharedLimits: shared, onRefused, onError });
  const clientLimits = limitsOf(config, instruments);
  if (identity === null) return { callersWith, ticketing: null, clientLimits, stop: async () => {} };

  if (config.ticketKeys.length === 0)
    warn('TICKET_SECRETS is not set: tickets end with this process, and no other process accepts them');
  const secrets = config.ticketKeys.length > 0 ? config.ticketKeys : [randomBytes(32)];
  const keys = serviceKeys(secrets, config.auth!.audience);
  const tickets = createTickets(keys);
  const { validMs: longestMs, minValidMs } = limits.tickets;
  // At most as long as a reservation: after one that expired, a customer needs a new ticket.
  const validMs = ({ paymentWindowS }: Sale): number =>
    Math.min(longestMs, Math.max(minValidMs, (paymentWindowS ?? config.paymentWindowS) * 1_000));
  const onChecked = (result: string) => instruments.botChecks.inc({ result });
  const attempts = tokenBuckets(config.customerRate);
  const { waitingRoom, stop } = openWaitingRoom(context, validMs);
  const { clock } = context.postgres;
  await clock.synchronize();
  const ticketing = {
    gate: createTicketGate({ tickets, attempts, addresses: clientLimits.addresses, clock, onRefused }),
    tickets,
    validMs,
    waitingRoom,
    botCheck: config.botCheck === 'none' ? acceptEverybody : proofOfWork(keys, onChecked),
    sharedLimits: shared,
  };
  return { callersWith, ticketing, clientLimits, stop };
}

function openWaitingRoom(
  { postgres, shedder, reports }: CustomersContext,
  validMs: (sale: Sale) => number,
): { readonly waitingRoom: WaitingRoom; stop(): Promise<unknown> } {
  const capacity = shareCapacity(postgres, shedder, (error) => reports.onError('share-capacity', error));
  const turns = turnsIn(postgres);
  const health = reports.background.loop('turns');
  const stopDeleting = repeatedly(limits.retention.everyMs, (isStopped) =>
    health.step('delete expired turns', () => untilNone(() => turns.deleteExpired(), isStopped)),
  );
  return {
    waitingRoom: createWaitingRoom(turns, () => capacity.perSecond, validMs),
    stop: () => Promise.all([capacity.stop(), stopDeleting()]),
  };
}

function limitsOf(config: Config, { refusals }: Instruments): ClientLimits {
  return {
    addresses: clientAddresses(config.trustedProxies),
    requests: config.addressRate === 0 ? null : tokenBuckets(config.addressRate),
    connections: config.addressConnections,
    onLimited: (reason) => refusals.inc({ reason }),
  };
}
