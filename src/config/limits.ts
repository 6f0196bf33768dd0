/**
 * Every bound with its reason. Times are in milliseconds unless the name ends in another unit. Relations between bounds are
 * checked below, when the module loads.
 */
export const limits = {
  /** A purchase body is `{"userId":"…"}`: at most 64 characters and some white space. */
  purchaseBodyBytes: 4 * 1024,
  /** Administrative bodies hold a sale: texts, each character escaped in six bytes, and a few numbers. */
  bodyBytes: 16 * 1024,
  saleNameLength: 200,
  /** Of a sale. The CHECKs of Postgres say the same. */
  descriptionLength: 2_000,
  imageUrlLength: 1_000,
  userIdLength: 64,
  sourceLength: 128,
  /** Units of a sale: Postgres INTEGER. */
  maxUnits: 2_147_483_647,
  /** Ids of sales: Postgres INTEGER. A larger id is unknown without asking a store. */
  maxSaleId: 2_147_483_647,
  /** Keeps price × units within the integers that a double represents exactly. */
  maxPriceCents: 1_000_000_000,
  /** The longest payment window, seconds. */
  maxPaymentWindowS: 31_536_000,
  /** Of an order: Postgres's integer. */
  maxAmountCents: 2_147_483_647,
  /** Units of an order: the CHECKs of Postgres say the same. */
  maxPerOrder: 100,
  maxPoints: 1_000_000_000,
  /** Entries of a user's points: they are read by people. */
  listLength: 1_000,
  /** Sales of one page of `GET /sales`. */
  pageLength: 100,

  /** Connections to Postgres for one process. More of them only queue for the hot row inside Postgres. */
  postgresPoolSize: 16,
  /** Connections of one process for reads: GET routes and tickets. A flood of reads cannot take the connections of purchases. */
  readPoolSize: 4,
  /** Reads queued for such a connection; further ones end as `busy`. */
  maxQueuedReads: 200,
  /** Wait for a connection; then the attempt ends as `busy`. */
  postgresConnectMs: 2_000,
  /** Then an unused connection is closed. For the next rush Postgres would start a process for each. */
  postgresIdleMs: 300_000,
  /** Wait for a row lock (`lock_timeout`); then the attempt ends as `busy`. */
  postgresLockMs: 2_000,
  /**
   * The same in a batch with orders of several sales, which then go to batches of their own: longer than the statements of other processes,
   * also behind a synchronous standby, and short for the customers of the other sales.
   */
  sharedBatchLockMs: 200,
  /** `statement_timeout`: hot-path statements exceed it only when Postgres is in trouble. */
  postgresStatementMs: 3_000,
  /** Wait for the reply to a Redis command; then its outcome is unknown. */
  redisCommandMs: 1_500,

  /** Orders per statement. At 256 the fixed cost of a batch is small; larger batches only add latency. */
  commitBatchSize: 256,
  /** A batch takes so many although its share is smaller: its fixed cost is that of more. */
  leastBatch: 16,
  /** Commit statements in flight, on one connection: see concurrency/micro-batcher.ts. */
  commitInFlight: 3,
  /** Longest time for which a batch is held back beside other processes that sell the sale (strategies/kit/placing-batches.ts): a few full batches of theirs. */
  commitHoldMs: 10,
  /** Orders queued for commit; above it an attempt ends as `busy` and its unit is released. */
  commitQueue: 120_000,
  /** CONFIRM=accepted: orders accepted but not committed; above it an attempt ends as `busy`. */
  acceptedBacklog: 100_000,
  /** Time an order may queue for commit; then it ends as `busy` and its unit is released. */
  commitWaitMs: 4_000,
  /** A failed batch is not retried after this time. */
  commitGiveUpMs: 4_000,
  /** Times a batch is sent, including the first. */
  commitRetries: 5,

  /** Attempts per script. Larger batches only delay Redis's other clients. */
  scriptBatchSize: 256,
  /** Scripts in flight. */
  scriptInFlight: 2,

  /**
   * The longest lease that an attempt requests: its critical section is a few Redis commands of about a millisecond each. The
   * lock `redis` renews it while the holder lives; with other locks a slower holder ends as `busy`. A lease blocks all other
   * attempts until it expires when its holder died, or when a replica that missed the release was promoted.
   */
  attemptLeaseMs: 2_000,

  /** Load shedding: see concurrency/load-shedding.ts. */
  admission: {
    /** Share of ADMISSION_MS allowed for service by the stores under load; the rest is for queueing. */
    serviceShare: 0.3,
    /** At 640 attempts/s, 64 take 100 ms. A strategy that serves 10,000/s reaches ten times this limit within a few windows. */
    initialLimit: 64,
    minLimit: 4,
    maxLimit: 8_192,
    /** Attempts queued at once. Bounds memory; a fast strategy serves this many in time. */
    maxQueued: 10_000,
    /** Share of the queue that the attempts of one address may fill, with AUTH=jwt. */
    clientShare: 0.1,
    /** After a queue timeout, the queue is kept short for this long. */
    shortQueueMs: 1_000,
    /** Interval between adjustments of the concurrency limit. */
    windowMs: 100,
    /** Interval between checks for queue timeouts. */
    checkMs: 20,
  },
  /**
   * Earlier epochs of a Redis that are kept: one more whenever it is used again after a sale was loaded elsewhere. A sale whose copy is from
   * before the oldest has no reservations: the reaper loads one that has, within seconds.
   */
  retiredEpochs: 100,
  /** Interval at which a process confirms its sold-out latches, and the time for which a confirmation is trusted. */
  latchCheckMs: 40,
  latchTtlMs: 100,
  /** Sales that one process answers as sold out without asking a store. */
  maxLatches: 1_000,

  /** Lifetime of a claim by Redis's clock: only its process may commit or release the reservation. Then it is abandoned. */
  claimMs: 6_000,
  /** The claiming process stops this much earlier: the clocks of Redis, Postgres and the process may drift apart. */
  claimMarginMs: 500,
  /** A commit does not start with less time than this left on its claim. */
  claimLeastMs: 1_000,
  /** A repeated purchase waits this long for the order of the earlier attempt, and polls at this interval. */
  replayWaitMs: 1_000,
  replayPollMs: 25,
  reapEveryMs: 1_000,
  /** Interval between looks at each server of Redis. */
  inspectEveryMs: 1_000,
  /** Sales per scan of the reservation reaper; a scan blocks Redis for some milliseconds. */
  scanBatch: 100,
  /** Reservations of one sale that one reaper pass resolves. */
  reapBatch: 500,
  /** Interval between sweeps for expired orders and unpublished outbox rows. */
  sweepEveryMs: 1_000,
  /** Orders that one statement expires; it holds the row of their sale for some milliseconds. */
  expiryBatch: 500,
  /** Outbox rows published to Redis in one transaction. */
  outboxBatch: 200,
  /** An outbox row of a sale that Redis has not loaded is kept this long; loading a sale takes less. */
  outboxKeepMs: 30_000,
  /** One of a sale that was loaded in a newer Redis is for the processes of that one. Two are in use at once for less than this. */
  outboxElsewhereMs: 3_600_000,
  /** Changes of a sale that are kept are left out of the search for so long, so that they do not hold up those behind them. */
  outboxPauseMs: 2_000,
  /** Customers on the internet: AUTH=jwt. */
  identity: {
    /** The issuer's keys are renewed after this time; while the issuer does not answer, they count for `keysKeptMs`. */
    keysMaxAgeMs: 600_000,
    keysKeptMs: 12 * 3_600_000,
    /** They are fetched at most this often for an unknown key, and after a renewal that failed. */
    keysCooldownMs: 5_000,
    /** Wait for the issuer; then the request ends as `busy`. */
    keysTimeoutMs: 5_000,
    /** By how much the issuer's clock may differ. */
    clockToleranceS: 5,
    /** Longer tokens are refused before their signature is checked. */
    tokenLength: 8_192,
  },
  tickets: {
    /** A ticket is valid for this long from its turn on. */
    validMs: 600_000,
    /**
     * With a shorter PAYMENT_WINDOW_S a ticket expires after that, but not before this: after an expired reservation, a customer
     * needs a new ticket.
     */
    minValidMs: 60_000,
    /** The longest lottery. */
    maxSpreadS: 3_600,
    /** The next free turn of a sale is remembered this long after the last one was given. */
    keepMs: 3_600_000,
    /** Turns given by one statement. A larger batch saves nothing more, and locks the row of the room for longer than 5 ms. */
    turnBatch: 256,
    /** Customers who wait for a turn; a further one ends as `busy`. They are given in less than a second. */
    maxQueuedTurns: 20_000,
    /** Interval at which processes exchange what they serve, and the age at which such a figure is ignored. */
    capacityEveryMs: 1_000,
    capacityMaxAgeMs: 10_000,
    /** Without a queue, capacity is assumed to be this much higher than what was served, if that was most of it. */
    capacityGrowth: 1.25,
    capacityUsed: 0.7,
    /** Leading zero bits of a proof of work (262,144 hashes on average), and how long its challenge is valid. */
    proofBits: 18,
    proofMs: 120_000,
    /** Unpaid reservations of one customer. */
    unpaid: 3,
    /** Expired or cancelled reservations within `unpaidWithinMs` that a customer may have; each further one doubles the wait. */
    unpaidClosed: 2,
    unpaidWithinMs: 24 * 3_600_000,
    unpaidWaitMs: 60_000,
  },
  /** Defaults of the limits for each client with AUTH=jwt, and requests of one customer for what is not a purchase. */
  clients: {
    addressRate: 100,
    customerRate: 5,
    addressConnections: 256,
    requestsAMinute: 120,
    ticketsAMinute: 20,
    /** Rate-limit buckets of a process, a power of 2: more than it serves clients in a second. They take 1.5 MiB. */
    buckets: 131_072,
  },
  waitlist: {
    /** A customer who was named has this long to buy; then the next is named. As long as a ticket is valid. */
    turnMs: 600_000,
    /** Interval between searches for sales whose next customers are to be named. */
    everyMs: 5_000,
    /** Places that are counted: a count costs as much as there are customers before. */
    counted: 1_000,
  },
  /** Rows of the audit log that one pass appends, and the interval between passes. */
  auditBatch: 1_000,
  auditEveryMs: 1_000,
  /** The last rows of the audit log that are searched for those of one sale, without an index. */
  auditLogScan: 100_000,
  /** Interval at which the end of the audit log is written to the log: a copy of the chain's head in another place. */
  auditHeadEveryMs: 3_600_000,
  /** Deletion of old rows: see store/postgres/retention.ts. */
  retention: {
    /** Smallest RETENTION_DAYS except 0: the limit on unpaid reservations counts orders of a day (`tickets.unpaidWithinMs`). */
    minDays: 1,
    maxDays: 36_500,
    /** Rows per statement, which then takes some milliseconds, and the interval between passes. */
    batch: 500,
    everyMs: 20_000,
  },
  /** Server-sent events: see http/broadcast.ts. */
  events: {
    /** Intervals at which a process reads all watched sales, in one statement, and the health for the console. */
    salesEveryMs: 250,
    consoleEveryMs: 1_000,
    /**
     * An unchanged frame is repeated after this time. This keeps proxies from closing the stream and corrects the clients' clocks.
     */
    heartbeatMs: 5_000,
    /** A listener that reads nothing for this long is disconnected. */
    stalledMs: 30_000,
    /** A browser reconnects after this time at the earliest, and twice this time at the latest. */
    retryMs: 2_000,
    /** Streams of one process. Each costs about 20 KiB and a descriptor. */
    listeners: 10_000,
  },
  /** Tasks: effects outside Stampede, performed after the commit. */
  tasks: {
    /** Interval between claims of an idle worker: the latency of a task, and the cost of an idle process. */
    pollMs: 1_000,
    /** Interval between passes that reclaim abandoned tasks, and how many of a state one pass reclaims. */
    reclaimEveryMs: 5_000,
    reclaimBatch: 500,
    /** A task queued by an earlier version for longer has lost its entry in Redis. */
    queuedMs: 30_000,
    /** Tasks that one process handles at once. A handler holds no connection to a store. */
    concurrency: 8,
    /** Deadline of a handler, from the claim of its task. */
    handlerMs: 10_000,
    /** A task that is processing for longer has lost its worker. */
    processingMs: 30_000,
    /** Failed attempts until a task is dead: with the backoff below it survives an outage of 1 h 45 min. */
    attempts: 20,
    /** Delay after the first failed attempt; it doubles with each one, up to the maximum. */
    backoffMs: 1_000,
    maxBackoffMs: 600_000,
    /** Delay before a worker records a result again when Postgres did not answer. */
    storeRetryMs: 500,
    /** On shutdown, running tasks have this long to finish; then they are aborted and retried elsewhere. */
    stopMs: 3_000,
  },
  /**
   * Unanswered or unsent requests of one connection. Browsers and common clients have one at a time; a client that pipelines
   * this many gains nothing from more.
   */
  requestsPerConnection: 100,
  /**
   * Bytes of responses that clients have not read: see http/unread-responses.ts. A slow client reads a megabyte a minute; a client that
   * reads nothing costs at most `perConnection`, and as much as is rendered in `everyMs`.
   */
  unread: {
    everyMs: 250,
    afterMs: 60_000,
    perConnection: 4 * 2 ** 20,
    perAddress: 16 * 2 ** 20,
    perProcess: 128 * 2 ** 20,
  },
  /** A request's headers, and the whole request, must arrive within this time. A new connection must send within the latter. */
  headersMs: 10_000,
  requestMs: 15_000,
  /** On shutdown, time to export the remaining traces. */
  traceFlushMs: 2_000,
  /** Interval at which a server looks for late requests. */
  lateRequestsEveryMs: 1_000,
  /**
   * Connections that wait until the process accepts them; Linux also bounds them by `net.core.somaxconn`. Node's default of 511
   * overflows in a rush: some clients then connect seconds later, or wait on a connection that the service does not know.
   */
  listenBacklog: 4_096,
  /** File descriptors that connections of clients leave to the stores, the log and the process. */
  reservedDescriptors: 256,
  /** Connections of administrators, with ADMIN_PORT: they use half of the reserved descriptors. */
  adminConnections: 128,
  /** Pause between two computations of `/metrics`; concurrent requests share one. */
  metricsEveryMs: 1_000,
  /** A repeated error is logged at once, then at this interval with its count: an outage must not fill a disk. */
  repeatedErrorMs: 10_000,
  /**
   * Signals within this time of the first are the same one: see config/stop-signals.ts. npm forwards its own after some
   * milliseconds, and later on a busy machine. A second Ctrl-C within it has no effect; a third, after it, does.
   */
  sameSignalMs: 1_000,
  /** On shutdown, requests in progress have this long to finish. */
  shutdownMs: 10_000,
  /** Longest SHUTDOWN_DELAY_MS: load balancers need seconds. */
  maxShutdownDelayMs: 600_000,
  /** On shutdown, idle connections stay open this long: a request may be on its way on one of them. */
  drainMs: 1_000,
  /** `Retry-After` of a `busy` answer, in seconds. */
  retryAfterS: 1,
  /** `Retry-After` of an `unknown-outcome` answer, in seconds: by then the stores execute no request of the attempt any more. */
  unknownRetryAfterS: 4,
} as const;

// One slow command must not cost the lease.
if (limits.attemptLeaseMs <= limits.redisCommandMs) {
  throw new Error('limits: attemptLeaseMs must exceed redisCommandMs');
}
// An order that was queued for the maximum time still has time for its commit.
if (limits.claimMs < limits.commitWaitMs + limits.claimMarginMs + limits.claimLeastMs) {
  throw new Error('limits: claimMs must be at least commitWaitMs + claimMarginMs + claimLeastMs');
}
// An order that a shared batch has left has time for the batch of its sale.
if (limits.sharedBatchLockMs >= limits.postgresLockMs) {
  throw new Error('limits: sharedBatchLockMs must be less than postgresLockMs');
}
// The deadline of a statement has passed when the customer retries.
if (limits.unknownRetryAfterS * 1_000 <= Math.max(limits.postgresStatementMs, limits.redisCommandMs)) {
  throw new Error('limits: unknownRetryAfterS must exceed postgresStatementMs and redisCommandMs');
}
// Recovery resolves every reservation within 10 s of a restart.
if (limits.claimMs + 2 * limits.reapEveryMs > 10_000) {
  throw new Error('limits: claimMs + 2 × reapEveryMs must not exceed 10 s');
}
// Orders that the limit on unpaid reservations counts must not be deleted.
if (limits.retention.minDays * 86_400_000 < limits.tickets.unpaidWithinMs) {
  throw new Error('limits: retention.minDays must be at least tickets.unpaidWithinMs');
}
// A live worker records its result before the task is reclaimed: the handler ends in time, and there is time to write twice.
if (limits.tasks.processingMs < limits.tasks.handlerMs + 2 * limits.postgresStatementMs) {
  throw new Error('limits: tasks.processingMs must be at least tasks.handlerMs + 2 × postgresStatementMs');
}

/** The bounds of task processing as plain numbers, so that tests can pass smaller ones. */
export type TaskBounds = { readonly [Bound in keyof typeof limits.tasks]: number };
