/**
 * The order pipeline of one process: from an attempt to the order, and all that happens to it afterwards. `service.ts` puts HTTP before it;
 * lab/explore runs several in one process.
 *
 *   attempt ──▶ purchases ──▶ strategy ──▶ settlement ──▶ committer        lifecycle · payments · refunds · waitlist
 *                                                                          passes: what must happen again and again, in any process
 */
import { createLoadShedder, type LoadShedder } from '../concurrency/load-shedding.ts';
import { untilNone } from '../concurrency/periodic.ts';
import type { Config } from '../config/env.ts';
import { limits } from '../config/limits.ts';
import { attemptTally } from '../metrics/attempt-tally.ts';
import { measureAdmission, measureCommitter, measureLatch } from '../metrics/instruments.ts';
import { createBacklog } from '../orders/backlog.ts';
import { type CloseResult, createLifecycle, type Lifecycle } from '../orders/lifecycle.ts';
import {
  createOrderCommitter,
  type OrderCommitter,
  type OrderCommitterContext,
} from '../orders/order-committer.ts';
import { createPayments, type Payments } from '../orders/payments.ts';
import { createPurchases, type Purchases } from '../orders/purchase.ts';
import { type PreviousPass, type ReaperCounts, reapOnce } from '../orders/reservation-reaper.ts';
import { createSaleRefunds, type SaleRefunds } from '../orders/sale-refunds.ts';
import { createSettlement } from '../orders/settlement.ts';
import type { UncommittedOrders } from '../orders/uncommitted-orders.ts';
import { storeFailure } from '../store/failures/any-store.ts';
import { type SaleGroups, saleGroups } from '../store/postgres/sale-groups.ts';
import { createWaitlist, type Waitlist } from '../store/postgres/waitlist.ts';
import type { KnownSoldOut } from '../strategies/strategy.ts';
import type { Core, Reports } from './core.ts';

export { uncommittedOrders } from '../orders/uncommitted-orders.ts';

/** What an error of a pipeline means to whoever called it: `defect` is a mistake in the code. */
export const failureOf = (error: unknown) => storeFailure(error).kind;

/** Work that every process repeats. Several may do so at once. It never throws: the health of its loop says what failed. */
export interface Pass {
  readonly name: string;
  /** The pause between two runs. */
  readonly everyMs: number;
  run(isStopped: () => boolean): Promise<unknown>;
}

export interface Pipeline {
  readonly purchases: Purchases;
  readonly shedder: LoadShedder;
  readonly lifecycle: Lifecycle;
  readonly payments: Payments;
  readonly refunds: SaleRefunds;
  readonly waitlist: Waitlist;
  readonly groups: SaleGroups;
  readonly passes: readonly Pass[];
  /**
   * Settles what an earlier process left, before the first request: another strategy may have sold since this one last ran.
   * @returns null: nothing is reserved with this strategy, or the stores did not answer
   */
  recover(): Promise<ReaperCounts | null>;
}

/** A customer whose order is closed may buy at once where it was closed; other processes notice the units by their next confirmation. */
function knowing(lifecycle: Lifecycle, knownSoldOut: KnownSoldOut | undefined): Lifecycle {
  const forget = (result: CloseResult) => {
    if (result.kind === 'closed') knownSoldOut?.forget(result.order.saleId);
    return result;
  };
  return {
    ...lifecycle,
    cancel: async (...asked) => forget(await lifecycle.cancel(...asked)),
    refund: async (...asked) => forget(await lifecycle.refund(...asked)),
  };
}

export interface PipelineOptions {
  readonly config: Config;
  readonly core: Core;
  readonly reports: Reports;
  readonly uncommitted: Pick<UncommittedOrders, 'has'>;
  readonly warn: (message: string, details: object) => void;
  /** Wraps the committer, for traces. */
  readonly traced?: (committer: OrderCommitter) => OrderCommitter;
}

export function createPipeline(options: PipelineOptions): Pipeline {
  const { config, core, reports, uncommitted, warn, traced = (committer) => committer } = options;
  const { postgres, outbox, strategy } = core;
  const { instruments, background, onError } = reports;
  const { mirror, knownSoldOut, maxBatch } = strategy;
  const reserving = mirror &&
    outbox && {
      mirror,
      outbox,
      backlog: createBacklog(),
      committer: traced(createCommitter(config, { postgres, mirror, outbox }, reports)),
    };
  const shedder = createLoadShedder(config.admissionMs, maxBatch);
  measureAdmission(instruments, shedder);
  if (knownSoldOut) measureLatch(instruments, knownSoldOut);
  const settlement = reserving && createSettlement({ ...config, ...reserving, postgres, onError });
  const tally = attemptTally(instruments.registry, config.strategy);
  const expiry = background.loop('expiry');
  const lifecycle = knowing(
    createLifecycle({ ...config, ...core, instruments, health: expiry }),
    knownSoldOut,
  );
  const refunding = background.loop('refunds');
  const refunds = createSaleRefunds({ ...core, instruments, health: refunding });
  const waitlist = createWaitlist(postgres, outbox !== null);
  const groups = saleGroups(postgres);

  const passes: Pass[] = [];
  const everySweep = (name: string, run: Pass['run']) =>
    passes.push({ name, everyMs: limits.sweepEveryMs, run });
  let recover: Pipeline['recover'] = async () => null;
  if (reserving !== null) {
    const health = background.loop('reservation-reaper');
    const reaping = { ...core, ...reserving, instruments, health, log: warn };
    const previous: PreviousPass = new Map();
    recover = () => health.step('scan sales', () => reapOnce(reaping));
    passes.push({
      name: 'reservation-reaper',
      everyMs: limits.reapEveryMs,
      run: (isStopped) => health.step('scan sales', () => reapOnce(reaping, isStopped, previous)),
    });
  }
  everySweep('expiry', (isStopped) =>
    expiry.step('expire orders', () => untilNone(() => lifecycle.expireDue(), isStopped)),
  );
  everySweep('refunds', (isStopped) =>
    refunding.step('refund orders', () => untilNone(() => refunds.closeBatch(), isStopped)),
  );
  if (outbox !== null)
    everySweep('mirror-outbox', (isStopped) => untilNone(() => outbox.publish(), isStopped));
  const naming = background.loop('waitlist');
  const run = () => naming.step('find sales', () => waitlist.nameNext(naming));
  passes.push({ name: 'waitlist', everyMs: limits.waitlist.everyMs, run });
  return {
    purchases: createPurchases({ strategy, settlement, shedder, tally, groups }),
    shedder,
    lifecycle,
    payments: createPayments({ ...config, ...core, uncommitted, instruments, onError, warn }),
    refunds,
    waitlist,
    groups,
    passes,
    recover,
  };
}

function createCommitter(
  config: Config,
  stores: Pick<OrderCommitterContext, 'postgres' | 'mirror' | 'outbox'>,
  { instruments, onError }: Reports,
): OrderCommitter {
  const committer = createOrderCommitter({ ...config, ...stores, instruments, onError });
  measureCommitter(instruments, committer);
  return committer;
}
