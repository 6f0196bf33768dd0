/** What the routes use. */
import type { BotCheck } from '../access/bot-check.ts';
import type { SharedLimits } from '../access/shared-limits.ts';
import type { Tickets } from '../access/ticket.ts';
import type { WaitingRoom } from '../access/waiting-room.ts';
import type { WebhookSecret } from '../config/access.ts';
import type { StrategyDescription } from '../domain/guarantees.ts';
import type { Sale } from '../domain/sale.ts';
import type { LockDescription } from '../locks/lock.ts';
import type { Instruments } from '../metrics/instruments.ts';
import type { Degradation } from '../metrics/loop-health.ts';
import type { Lifecycle } from '../orders/lifecycle.ts';
import type { Payments } from '../orders/payments.ts';
import type { Purchases } from '../orders/purchase.ts';
import type { SaleRefunds } from '../orders/sale-refunds.ts';
import type { Ledger } from '../points/ledger.ts';
import type { SaleGroups } from '../store/postgres/sale-groups.ts';
import type { SaleTable } from '../store/postgres/sales.ts';
import type { Waitlist } from '../store/postgres/waitlist.ts';
import type { Strategy } from '../strategies/strategy.ts';
import type { TaskAdmin } from '../tasks/tasks.ts';
import type { AdminTokens, RecordEvent } from './admin.ts';
import type { Assets } from './assets.ts';
import type { Broadcast } from './broadcast.ts';
import type { Callers } from './callers.ts';
import type { ClientLimits } from './client-limits.ts';
import type { TicketGate } from './purchase/ticket-gate.ts';
import type { Reads } from './reads.ts';

export interface ServiceContext {
  readonly active: string;
  readonly lock: string;
  readonly strategies: readonly StrategyDescription[];
  readonly locks: readonly LockDescription[];
  readonly instruments: Instruments;
  /** Reads the metrics of all processes and cells, or null when unavailable. Null: there is one of each. */
  readonly metricsOfAll: (() => Promise<string | null>) | null;
  /** Failing background work. */
  readonly degraded: () => readonly Degradation[];
  /** Whether the service is about to close its port. */
  readonly isStopping: () => boolean;
  /** Whether the service is ready while some store answers: each of several has different sales. Otherwise all must. */
  readonly isDivided: boolean;
  /** Checks by store; a check throws when its store does not answer. */
  readonly checks: Readonly<Record<string, () => Promise<void>>>;
}

interface Ticketing {
  readonly gate: TicketGate;
  readonly tickets: Tickets;
  readonly waitingRoom: WaitingRoom;
  /** How long a ticket of a sale is valid from its turn on. */
  readonly validMs: (sale: Sale) => number;
  readonly botCheck: BotCheck;
  readonly sharedLimits: SharedLimits;
}

export interface HttpContext {
  readonly service: ServiceContext;
  readonly strategy: Pick<Strategy, 'mirror' | 'load' | 'setTerms' | 'restock'>;
  readonly purchases: Purchases;
  readonly sales: Pick<SaleTable, 'create' | 'change' | 'get'>;
  readonly reads: Reads;
  readonly lifecycle: Omit<Lifecycle, 'expireDue'>;
  readonly refunds: Pick<SaleRefunds, 'request'>;
  readonly confirm: 'durable' | 'accepted';
  /** Null: no event would name its customers. */
  readonly waitlist: Pick<Waitlist, 'join' | 'leave'>;
  readonly groups: Pick<SaleGroups, 'add' | 'present'>;
  readonly payments: Payments;
  readonly ledger: Ledger;
  readonly tasks: TaskAdmin;
  /** Of those who may report payments; empty: administrators may. */
  readonly paymentSecrets: readonly WebhookSecret[];
  /** Of sales that name none: ISO 4217. */
  readonly currency: string;
  /** Of sales that name none. */
  readonly paymentWindowS: number;
  readonly callers: Callers;
  /** Null: AUTH=none, and visitors choose a name. */
  readonly ticketing: Ticketing | null;
  /** Null: the server has no administrative routes, and no console. */
  readonly adminTokens: AdminTokens | null;
  readonly saleEvents: Pick<Broadcast<number>, 'listen' | 'size'>;
  readonly clientLimits: ClientLimits;
  readonly assets: Assets;
  /** Streams end when it fires. */
  readonly stopping: AbortSignal;
  /** Receives failures of stores that a route answers itself, or a stream has. @param operation such as 'watch-sales' */
  readonly onStoreError: (operation: string, error: unknown, ids?: object) => void;
  /** Records administrative acts. */
  readonly record: RecordEvent;
  /** Receives failures to record the answer to one. */
  readonly onUnrecorded: (error: unknown) => void;
  /** Receives unexpected errors. */
  readonly onError: (error: unknown, request: { readonly method: string; readonly path: string }) => void;
}
