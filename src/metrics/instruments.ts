/** Prometheus metrics of the service. Durations are in seconds, as Prometheus recommends. */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';

export interface Instruments {
  readonly registry: Registry;
  /** Attempts decided by one script or statement, for strategies that batch. */
  readonly attemptBatchSize: Histogram;
  /** Orders in one statement of the order committer. */
  readonly commitBatchSize: Histogram;
  /** Abandoned reservations that the reaper committed or released. */
  readonly reservationsReaped: Counter<'result'>;
  /** Status changes of orders after they were placed. */
  readonly transitions: Counter<'to'>;
  /** Units by which Redis was repaired to match Postgres; the direction `surplus` would have oversold without the CHECK. */
  readonly driftUnits: Counter<'direction'>;
  /** Duration of attempts at tasks by result. */
  readonly taskSeconds: Histogram<'kind' | 'result'>;
  /** Abandoned tasks by the state in which they were left. */
  readonly tasksReclaimed: Counter<'from'>;
  /** Stream entries whose task could not be claimed any more. */
  readonly taskHintsDropped: Counter;
  /** Requests refused before the service worked on them, by reason. */
  readonly refusals: Counter<'reason'>;
  readonly ticketsIssued: Counter;
  /** Failed store operations. */
  readonly storeErrors: Counter<'store' | 'operation'>;
}

const BATCH_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256];

export function createInstruments(): Instruments {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const registers = [registry];
  return {
    registry,
    attemptBatchSize: new Histogram({
      name: 'stampede_attempt_batch_size',
      help: 'Purchase attempts decided by one script or statement',
      buckets: BATCH_SIZES,
      registers,
    }),
    commitBatchSize: new Histogram({
      name: 'stampede_commit_batch_orders',
      help: 'Orders committed by one statement',
      buckets: BATCH_SIZES,
      registers,
    }),
    reservationsReaped: new Counter({
      name: 'stampede_reservations_reaped_total',
      help: 'Abandoned reservations resolved by the reaper, by result',
      labelNames: ['result'],
      registers,
    }),
    transitions: new Counter({
      name: 'stampede_order_transitions_total',
      help: 'Orders that changed status after they were placed, by new status; "revived" is a payment after expiry',
      labelNames: ['to'],
      registers,
    }),
    driftUnits: new Counter({
      name: 'stampede_redis_drift_units_total',
      help: 'Units by which Redis differed from Postgres before a repair, by direction',
      labelNames: ['direction'],
      registers,
    }),
    ...taskInstruments(registers),
    refusals: new Counter({
      name: 'stampede_refused_requests_total',
      help: 'Requests refused before the service worked on them, by reason: limits of an address or customer, tickets',
      labelNames: ['reason'],
      registers,
    }),
    ticketsIssued: new Counter({
      name: 'stampede_tickets_issued_total',
      help: 'Purchase tickets issued',
      registers,
    }),
    storeErrors: new Counter({
      name: 'stampede_store_errors_total',
      help: 'Failed operations, by store and operation',
      labelNames: ['store', 'operation'],
      registers,
    }),
  };
}

function taskInstruments(registers: Registry[]) {
  return {
    taskSeconds: new Histogram({
      name: 'stampede_task_duration_seconds',
      help: 'Duration of one attempt at a task, by kind and result (done, retry, dead)',
      labelNames: ['kind', 'result'],
      buckets: [0.002, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
      registers,
    }),
    tasksReclaimed: new Counter({
      name: 'stampede_tasks_reclaimed_total',
      help: 'Abandoned tasks that were reclaimed, by the state in which they were left',
      labelNames: ['from'],
      registers,
    }),
    taskHintsDropped: new Counter({
      name: 'stampede_task_hints_dropped_total',
      help: 'Stream entries whose task was already claimed or no longer queued',
      registers,
    }),
  };
}

/** Exposes the number of sold-out latches, read at each scrape. */
export function measureLatch({ registry }: Instruments, latch: { readonly size: number }): void {
  new Gauge({
    name: 'stampede_sold_out_latches',
    help: 'Sales that this process answers as sold out without asking a store',
    aggregator: 'max', // processes latch the same sales
    registers: [registry],
    collect() {
      this.set(latch.size);
    },
  });
}

/** Exposes the queue of the order committer, read at each scrape. */
export function measureCommitter({ registry }: Instruments, committer: { readonly waiting: number }): void {
  new Gauge({
    name: 'stampede_commit_queue_orders',
    help: 'Orders queued for commit',
    registers: [registry],
    collect() {
      this.set(committer.waiting);
    },
  });
}

/** Exposes the state of load shedding, read at each scrape. */
export function measureAdmission(
  { registry }: Instruments,
  admission: {
    readonly state: { readonly inFlight: number; readonly queued: number; readonly limit: number };
  },
): void {
  const gauge = (name: string, help: string, read: () => number) =>
    new Gauge({
      name: `stampede_admission_${name}`,
      help,
      registers: [registry],
      collect() {
        this.set(read());
      },
    });
  gauge('in_flight', 'Admitted purchase attempts in progress', () => admission.state.inFlight);
  gauge('queued', 'Purchase attempts queued for admission', () => admission.state.queued);
  gauge('limit', 'Concurrency limit of load shedding', () => admission.state.limit);
}

/** Exposes open tasks by state, counted at each scrape. The values are missing while Postgres does not answer. */
export function measureTasks(
  { registry }: Instruments,
  count: () => Promise<ReadonlyMap<string, number>>,
): void {
  new Gauge({
    name: 'stampede_tasks',
    help: 'Tasks that are not done, by state',
    labelNames: ['state'],
    aggregator: 'max', // every process counts the same table
    registers: [registry],
    async collect() {
      const counts = await count().catch(() => new Map<string, number>());
      this.reset();
      for (const [state, tasks] of counts) this.set({ state }, tasks);
    },
  });
}
