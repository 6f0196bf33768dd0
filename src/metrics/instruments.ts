/** Prometheus metrics of the service. Durations are in seconds, as Prometheus recommends. */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { shared } from '../concurrency/coalesce.ts';
import type { AuditState } from '../store/postgres/audit-log.ts';

/** What each one counts is its `help`. */
export type Instruments = ReturnType<typeof createInstruments>;

/** Metrics of the process, beside those of its service. */
export const measureProcess = ({ registry }: Instruments): void =>
  collectDefaultMetrics({ register: registry });

const BATCH_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256];

export function createInstruments() {
  const registry = new Registry();
  const registers = [registry];
  const instruments = {
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
    ...lockInstruments(registers),
    ...taskInstruments(registers),
    ...accessInstruments(registers),
    rowsDeleted: new Counter({
      name: 'stampede_retention_deleted_rows_total',
      help: 'Rows deleted because they were older than RETENTION_DAYS, by table',
      labelNames: ['table'],
      registers,
    }),
    storeErrors: new Counter({
      name: 'stampede_store_errors_total',
      help: 'Failed operations, by store and operation',
      labelNames: ['store', 'operation'],
      registers,
    }),
  };
  startAtZero(instruments);
  return instruments;
}

/** A counter that first appears at 1 shows no increase. Counters that alerts use therefore start at 0. */
function startAtZero(instruments: Instruments): void {
  const { driftUnits, reservationsReaped, transitions, paymentNotifications, refusals } = instruments;
  for (const direction of ['surplus', 'missing']) driftUnits.inc({ direction }, 0);
  for (const result of ['committed', 'existing', 'rejected']) reservationsReaped.inc({ result }, 0);
  transitions.inc({ to: 'refund-due' }, 0);
  for (const result of ['bad-signature', 'stale', 'unknown-order', 'amount-mismatch', 'conflict', 'surplus'])
    paymentNotifications.inc({ result }, 0);
  for (const reason of ['admin-token-wrong', 'connections']) refusals.inc({ reason }, 0);
}

function accessInstruments(registers: Registry[]) {
  return {
    refusals: new Counter({
      name: 'stampede_refused_requests_total',
      help: 'Requests and connections refused before any work, by reason',
      labelNames: ['reason'],
      registers,
    }),
    ticketsIssued: new Counter({
      name: 'stampede_tickets_issued_total',
      help: 'Purchase tickets issued',
      registers,
    }),
    botChecks: new Counter({
      name: 'stampede_bot_checks_total',
      help: 'Checks before a ticket (BOT_CHECK), by result',
      labelNames: ['result'],
      registers,
    }),
    paymentNotifications: new Counter({
      name: 'stampede_payment_notifications_total',
      help: 'Payment notifications, by effect or by the reason why they had none',
      labelNames: ['result'],
      registers,
    }),
    adminActs: new Counter({
      name: 'stampede_admin_acts_total',
      help: 'Administrative requests that change something, by route',
      labelNames: ['route'],
      registers,
    }),
  };
}

function lockInstruments(registers: Registry[]) {
  return {
    lockWaitSeconds: new Histogram({
      name: 'stampede_lock_wait_seconds',
      help: 'Duration of acquisitions of LOCK, by lock and result (held, contended, unavailable, aborted)',
      labelNames: ['lock', 'result'],
      buckets: [0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60],
      registers,
    }),
    leasesEnded: new Counter({
      name: 'stampede_lock_leases_ended_total',
      help: 'Leases of LOCK by how they ended: released, lost before the release, or unknown (the release had no answer)',
      labelNames: ['lock', 'ended'],
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
  };
}

interface Scraped<T> {
  /** Without `stampede_`. */
  readonly name: string;
  readonly help: string;
  /** `max`: every process reads the same; by default the values of the processes are added. */
  readonly aggregator?: 'max';
  /** Reads the value at each scrape; null: it is not known, and the metric is absent. */
  read(): T | null | Promise<T | null>;
}

function gauge({ registry }: Instruments, { name, read, ...options }: Scraped<number>): void {
  new Gauge({
    ...options,
    name: `stampede_${name}`,
    registers: [registry],
    async collect() {
      const value = await read();
      if (value === null) this.remove();
      else this.set(value);
    },
  });
}

function gaugeBy(
  label: string,
  { registry }: Instruments,
  { name, read, ...options }: Scraped<ReadonlyMap<string, number>>,
): void {
  new Gauge({
    ...options,
    name: `stampede_${name}`,
    labelNames: [label],
    registers: [registry],
    async collect() {
      const values = await read();
      this.reset();
      for (const [value, count] of values ?? []) this.set({ [label]: value }, count);
    },
  });
}

export function measureLatch(instruments: Instruments, latch: { readonly size: number }): void {
  const help = 'Sales that this process answers as sold out without asking a store';
  gauge(instruments, { name: 'sold_out_latches', help, aggregator: 'max', read: () => latch.size }); // processes latch the same sales
}

export function measureCommitter(instruments: Instruments, committer: { readonly waiting: number }): void {
  gauge(instruments, {
    name: 'commit_queue_orders',
    help: 'Orders queued for commit',
    read: () => committer.waiting,
  });
}

export function measureAdmission(
  instruments: Instruments,
  admission: {
    readonly state: { readonly inFlight: number; readonly queued: number; readonly limit: number };
  },
): void {
  const measure = (name: string, help: string, read: () => number) =>
    gauge(instruments, { name: `admission_${name}`, help, read });
  measure('in_flight', 'Admitted purchase attempts in progress', () => admission.state.inFlight);
  measure('queued', 'Purchase attempts queued for admission', () => admission.state.queued);
  measure('limit', 'Concurrency limit of load shedding', () => admission.state.limit);
}

export function measureConnections(
  instruments: Instruments,
  server: { getConnections(callback: (error: Error | null, count: number) => void): void },
): void {
  const read = () =>
    new Promise<number>((resolve) => server.getConnections((_, count) => resolve(count ?? 0)));
  gauge(instruments, { name: 'connections', help: 'Open connections of clients', read });
}

/** Shares one read among the gauges of one scrape; null: it failed. */
const oncePerScrape = <T>(read: () => Promise<T>): (() => Promise<T | null>) =>
  shared<void, T | null>(() => read().catch(() => null));

/** The length of the audit log and its pending events. Absent while Postgres does not respond. */
export function measureAudit(instruments: Instruments, read: () => Promise<AuditState>): void {
  const state = oncePerScrape(read);
  const measure = (name: string, help: string, of: keyof AuditState) =>
    gauge(instruments, {
      name: `audit_${name}`,
      help,
      aggregator: 'max',
      read: async () => (await state())?.[of] ?? null,
    });
  measure('entries', 'Entries of the audit log', 'entries');
  measure('pending', 'Events that are not in the audit log yet', 'pending');
  measure('lag_seconds', 'Age of the oldest event that is not in the audit log yet', 'lagS');
}

/** What slows hot rows. Absent while Postgres does not respond. */
export function measureOldSnapshots(
  instruments: Instruments,
  read: () => Promise<{ readonly oldestS: number; readonly deadRows: ReadonlyMap<string, number> }>,
): void {
  const state = oncePerScrape(read);
  gauge(instruments, {
    name: 'postgres_oldest_snapshot_seconds',
    help: 'How long the oldest snapshot has been seen that keeps dead rows',
    aggregator: 'max',
    read: async () => (await state())?.oldestS ?? null,
  });
  gaugeBy('table', instruments, {
    name: 'postgres_dead_rows',
    help: 'Dead rows that were not removed yet, by table',
    aggregator: 'max',
    read: async () => (await state())?.deadRows ?? null,
  });
}

/** Open tasks by state. Absent while Postgres does not respond. */
export function measureTasks(
  instruments: Instruments,
  count: () => Promise<ReadonlyMap<string, number>>,
): void {
  gaugeBy('state', instruments, {
    name: 'tasks',
    help: 'Tasks that are not done, by state',
    aggregator: 'max',
    read: oncePerScrape(count),
  });
}
