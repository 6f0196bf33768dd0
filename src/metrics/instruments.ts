/** What Stampede measures of itself, in Prometheus's terms. Times are in seconds, as Prometheus wants them. */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';

export interface Instruments {
  readonly registry: Registry;
  /** Attempts in one script, or one statement, of a strategy that gathers them. */
  readonly attemptBatch: Histogram;
  /** Orders in one statement of the writer. */
  readonly commitBatches: Histogram;
  /** Reservations that their own process never settled. */
  readonly recovered: Counter<'result'>;
  /** Orders that changed their state after they were placed. */
  readonly transitions: Counter<'to'>;
  /** Units by which Redis was corrected to what Postgres has; `surplus` had oversold but for the fence. */
  readonly driftUnits: Counter<'direction'>;
  /** Attempts at tasks by how they ended; their handler's time. */
  readonly taskSeconds: Histogram<'kind' | 'result'>;
  /** Tasks that dead processes left, by the state they were left in. */
  readonly tasksTakenBack: Counter<'from'>;
  /** Entries of the stream whose task was not to be claimed any more. */
  readonly taskHintsDropped: Counter;
  /** Failures of a store, by what was to be done. */
  readonly storeErrors: Counter<'store' | 'doing'>;
}

export function createInstruments(): Instruments {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const registers = [registry];
  return {
    registry,
    attemptBatch: new Histogram({
      name: 'stampede_attempt_batch',
      help: 'Attempts decided by one script or statement',
      buckets: [1, 2, 4, 8, 16, 32, 64, 128, 256],
      registers,
    }),
    commitBatches: new Histogram({
      name: 'stampede_writer_batch_orders',
      help: 'Orders committed by one statement',
      buckets: [1, 2, 4, 8, 16, 32, 64, 128, 256],
      registers,
    }),
    recovered: new Counter({
      name: 'stampede_recovered_reservations_total',
      help: 'Reservations of dead processes that were settled',
      labelNames: ['result'],
      registers,
    }),
    transitions: new Counter({
      name: 'stampede_order_transitions_total',
      help: 'Orders that were paid, revived by a late payment, cancelled, expired, or ended as refund-due',
      labelNames: ['to'],
      registers,
    }),
    driftUnits: new Counter({
      name: 'stampede_redis_drift_units_total',
      help: 'Units by which Redis differed from Postgres and was corrected',
      labelNames: ['direction'],
      registers,
    }),
    ...taskInstruments(registers),
    storeErrors: new Counter({
      name: 'stampede_store_errors_total',
      help: 'Failures of a store that did not end an attempt by themselves',
      labelNames: ['store', 'doing'],
      registers,
    }),
  };
}

function taskInstruments(registers: Registry[]) {
  return {
    taskSeconds: new Histogram({
      name: 'stampede_task_seconds',
      help: 'Time of one attempt at a task, by how it ended: done, retry, dead',
      labelNames: ['kind', 'result'],
      buckets: [0.002, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
      registers,
    }),
    tasksTakenBack: new Counter({
      name: 'stampede_tasks_taken_back_total',
      help: 'Tasks that a process left queued or processing, and that were taken back',
      labelNames: ['from'],
      registers,
    }),
    taskHintsDropped: new Counter({
      name: 'stampede_task_hints_dropped_total',
      help: 'Entries of the stream whose task another had claimed already',
      registers,
    }),
  };
}

/** Sales that this process knows to be sold out, looked at with each scrape. */
export function measureLatch({ registry }: Instruments, latch: { readonly size: number }): Gauge {
  return new Gauge({
    name: 'stampede_sales_known_sold_out',
    help: 'Sales that are answered "sold out" without asking a store',
    aggregator: 'max', // each process may know the same ones
    registers: [registry],
    collect() {
      this.set(latch.size);
    },
  });
}

/** Orders that the writer has not sent yet, looked at with each scrape. */
export function measureCommitter({ registry }: Instruments, writer: { readonly waiting: number }): Gauge {
  return new Gauge({
    name: 'stampede_writer_queue_orders',
    help: 'Orders that wait for the next statement',
    registers: [registry],
    collect() {
      this.set(writer.waiting);
    },
  });
}

/** How full the service is, looked at with each scrape. */
export function measureAdmission(
  { registry }: Instruments,
  admission: {
    readonly state: { readonly underWay: number; readonly waiting: number; readonly room: number };
  },
): Gauge {
  return new Gauge({
    name: 'stampede_admission_attempts',
    help: 'Attempts under way, attempts in line, and the room: how many may be under way',
    labelNames: ['what'],
    registers: [registry],
    collect() {
      const { underWay, waiting, room } = admission.state;
      this.set({ what: 'under-way' }, underWay);
      this.set({ what: 'waiting' }, waiting);
      this.set({ what: 'room' }, room);
    },
  });
}

/** Tasks by state, counted at each scrape; while Postgres cannot be asked, the figures are missing. */
export function measureTasks(
  { registry }: Instruments,
  count: () => Promise<ReadonlyMap<string, number>>,
): Gauge {
  return new Gauge({
    name: 'stampede_tasks',
    help: 'Tasks that are not done, by state',
    labelNames: ['state'],
    aggregator: 'max', // each process counts all of them
    registers: [registry],
    async collect() {
      const counts = await count().catch(() => new Map<string, number>());
      this.reset();
      for (const [state, tasks] of counts) this.set({ state }, tasks);
    },
  });
}
