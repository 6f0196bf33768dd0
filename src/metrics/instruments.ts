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
  /** How long acquisitions of LOCK waited, by result. */
  readonly lockWaitSeconds: Histogram<'lock' | 'result'>;
  /** Leases of LOCK by how they ended: see `ReleaseResult`. */
  readonly leasesEnded: Counter<'lock' | 'ended'>;
  /** Duration of attempts at tasks by result. */
  readonly taskSeconds: Histogram<'kind' | 'result'>;
  /** Abandoned tasks by the state in which they were left. */
  readonly tasksReclaimed: Counter<'from'>;
  /** Requests refused before the service worked on them, by reason. */
  readonly refusals: Counter<'reason'>;
  readonly ticketsIssued: Counter;
  /** Checks before a ticket by result: `passed`, `challenged` (no proof was sent), `failed`. */
  readonly botChecks: Counter<'result'>;
  /** Payment notifications by effect, or by the reason why they had none. */
  readonly paymentNotifications: Counter<'result'>;
  /** Administrative requests that change something. */
  readonly adminActs: Counter<'route'>;
  /** Rows that were deleted because they were old. */
  readonly rowsDeleted: Counter<'table'>;
  /** Failed store operations. */
  readonly storeErrors: Counter<'store' | 'operation'>;
}

const BATCH_SIZES = [1, 2, 4, 8, 16, 32, 64, 128, 256];

export function createInstruments(): Instruments {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const registers = [registry];
  const instruments: Instruments = {
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
      help: 'Duration of acquisitions of LOCK, by lock and result (held, contended, unavailable, aborted, invalid)',
      labelNames: ['lock', 'result'],
      buckets: [0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5],
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

/** Exposes the open connections of clients, read at each scrape. */
export function measureConnections(
  { registry }: Instruments,
  server: { getConnections(callback: (error: Error | null, count: number) => void): void },
): void {
  new Gauge({
    name: 'stampede_connections',
    help: 'Open connections of clients',
    registers: [registry],
    async collect() {
      this.set(
        await new Promise<number>((resolve) => server.getConnections((_, count) => resolve(count ?? 0))),
      );
    },
  });
}

/** Shares one read among the gauges of one scrape; null: it failed. */
function oncePerScrape<T>(read: () => Promise<T>): () => Promise<T | null> {
  let reading: Promise<T | null> | null = null;
  return () => {
    reading ??= read()
      .catch(() => null)
      .finally(() => {
        reading = null;
      });
    return reading;
  };
}

export interface AuditState {
  readonly entries: number;
  readonly pending: number;
  /** Age of the oldest pending event, seconds; 0: none is pending. */
  readonly lagS: number;
}

/** Exposes the length of the audit log and its pending events, read at each scrape. Absent while Postgres does not respond. */
export function measureAudit({ registry }: Instruments, read: () => Promise<AuditState>): void {
  const state = oncePerScrape(read);
  const gauge = (name: string, help: string, of: (state: AuditState) => number) =>
    new Gauge({
      name: `stampede_audit_${name}`,
      help,
      aggregator: 'max', // every process reads the same tables
      registers: [registry],
      async collect() {
        const now = await state();
        if (now === null) this.remove();
        else this.set(of(now));
      },
    });
  gauge('entries', 'Entries of the audit log', ({ entries }) => entries);
  gauge('pending', 'Events that are not in the audit log yet', ({ pending }) => pending);
  gauge('lag_seconds', 'Age of the oldest event that is not in the audit log yet', ({ lagS }) => lagS);
}

/** Exposes what slows hot rows, read at each scrape. The values are missing while Postgres does not answer. */
export function measureOldSnapshots(
  { registry }: Instruments,
  read: () => Promise<{ readonly oldestS: number; readonly deadRows: ReadonlyMap<string, number> }>,
): void {
  const state = oncePerScrape(read);
  new Gauge({
    name: 'stampede_postgres_oldest_snapshot_seconds',
    help: 'How long the oldest snapshot has been seen that keeps dead rows',
    aggregator: 'max', // every process reads the same
    registers: [registry],
    async collect() {
      const now = await state();
      if (now === null) this.remove();
      else this.set(now.oldestS);
    },
  });
  new Gauge({
    name: 'stampede_postgres_dead_rows',
    help: 'Dead rows that were not removed yet, by table',
    labelNames: ['table'],
    aggregator: 'max',
    registers: [registry],
    async collect() {
      const now = await state();
      this.reset();
      for (const [table, rows] of now?.deadRows ?? []) this.set({ table }, rows);
    },
  });
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
