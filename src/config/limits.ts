/**
 * Every bound in one place, with its reason. Times are milliseconds unless the name says otherwise. Relations
 * between bounds are asserted below, when the module loads.
 */
export const limits = {
  /** A purchase body is `{"userId":"…"}`: at most 64 characters and some white space. */
  purchaseBodyBytes: 4 * 1024,
  /** Administrative bodies hold a name and a few numbers. */
  bodyBytes: 16 * 1024,
  saleNameLength: 200,
  userIdLength: 64,
  sourceLength: 128,
  /** Postgres INTEGER. */
  maxUnits: 2_147_483_647,
  /** Postgres INTEGER; a sale with a larger id cannot exist. */
  maxSaleId: 2_147_483_647,
  /** Keeps price × units within what a double holds exactly. */
  maxPriceCents: 1_000_000_000,
  maxPoints: 1_000_000_000,
  /** `GET /sales` and a user's points are read by people. */
  listLength: 1_000,

  /** Connections to Postgres for one process. On one hot row more only wait for each other inside Postgres. */
  postgresPoolSize: 16,
  /** How long an attempt may wait for a connection before it is told `busy`. */
  postgresConnectMs: 2_000,
  /** A statement that waits longer for a row is given up, and told `busy`. */
  postgresLockMs: 2_000,
  /** No statement of the hot path takes longer unless Postgres is in trouble. */
  postgresStatementMs: 3_000,
  /** How long a command waits for Redis to answer before its outcome is unknown. */
  redisCommandMs: 1_500,

  /** Orders in one statement: what a batch costs by itself is small beside 256 orders; more add only latency. */
  commitBatchSize: 256,
  /** Statements under way at once, at most; the second only as `batchEagerBelow` says. */
  commitInFlight: 2,
  /** Members of a batch, beside which another one goes at once; beside a larger one only when it is full. */
  batchEagerBelow: 16,
  /** Orders waiting for the writer; beyond that an attempt is told `busy` and its unit goes back. */
  commitQueue: 120_000,
  /** With CONFIRM=accepted, orders that are accepted and not committed; beyond that an attempt is told `busy`. */
  acceptedBacklog: 100_000,
  /** An order that has waited longer is told `busy`, and its unit goes back. */
  commitWaitMs: 4_000,
  /** A batch is not tried again after this. */
  commitGiveUpMs: 4_000,
  /** How often a batch is sent, the first time included. */
  commitRetries: 5,

  /** Attempts in one script: more only make Redis's other clients wait. */
  scriptBatchSize: 256,
  /** Scripts under way at once, at most; the second only as `batchEagerBelow` says. */
  scriptInFlight: 2,

  /**
   * The longest lease that an attempt takes of a lock: its critical section is a few commands to Redis, of a millisecond each. The
   * lock `redis` renews a lease whose holder lives; under others, a holder that takes longer is `busy`. What is left of a lease
   * keeps all others out when its holder is dead, or when a replica is promoted that missed its release.
   */
  attemptLeaseMs: 2_000,

  /** Who is let in, and how many at a time: see concurrency/load-shedding.ts. */
  admission: {
    /** Of ADMISSION_MS, the part that an attempt under way may take when the stores are busy; the rest is for the line. */
    roomPart: 0.3,
    /** A strategy that serves 640/s has them done in 100 ms; one that serves 10,000/s has ten times the room soon. */
    roomAtStart: 64,
    roomLeast: 4,
    roomMost: 8_192,
    /** In line at once: memory, and as many as a fast strategy serves in time. */
    lineMost: 10_000,
    /** For how long it is remembered that somebody waited in vain. */
    rememberMs: 1_000,
    /** Between two measurements of the room. */
    windowMs: 100,
    /** Between two looks for those who waited too long. */
    lookMs: 20,
  },
  /** What a process knows of a sale that is sold out is confirmed so often, and believed for so long. */
  latchCheckMs: 40,
  latchBelievedMs: 100,
  /** Sales that one process answers "sold out" for without asking. */
  latches: 1_000,

  /** For so long, by Redis's clock, only the process that claimed a reservation may commit or release it; then it is abandoned. */
  claimMs: 6_000,
  /** The claiming process itself stops this much earlier: the clocks of Redis, Postgres and the process may drift apart. */
  claimMarginMs: 500,
  /** A commit with less time than this left until its claim ends is not begun. */
  claimLeastMs: 1_000,
  /** How long a repeat waits for the order of the customer's earlier attempt, and between two looks for it. */
  replayWaitMs: 1_000,
  replayPollMs: 25,
  reapEveryMs: 1_000,
  /** Sales that the recovery looks at together: for some milliseconds Redis does nothing else. */
  scanBatch: 100,
  /** Reservations that one pass of the recovery settles for one sale. */
  reapBatch: 500,
  /** How often expired orders and units that Redis has not heard of are looked for. */
  sweepEveryMs: 1_000,
  /** Orders that one statement expires: it holds their sale's row for some milliseconds. */
  expiryBatch: 500,
  /** Units that Redis hears of in one transaction. */
  movesBatch: 200,
  /** A unit's move that meets no sale in Redis is kept for so long: an opening takes less. */
  moveKeptMs: 30_000,
  /** The outbox: what happens outside, after the commit. */
  tasks: {
    /** Tasks that one pass of a dispatcher marks and enqueues, of those that wait and of those to be retried. */
    batch: 100,
    /** Entries in the stream; what is beyond waits in Postgres, where it is safe and costs nothing. */
    queue: 500,
    /** Between two looks for due tasks. It is the delay of a task, and the cost of an idle process. */
    pollMs: 1_000,
    /** The same while the stream is full: workers may have emptied it. */
    fullPollMs: 100,
    /** Between two looks for tasks that somebody left. */
    takeBackEveryMs: 5_000,
    /** A task that is queued for longer is enqueued again; the entry that comes second is dropped. */
    queuedMs: 30_000,
    /** Tasks that one process works on at a time. A handler holds no connection to a store. */
    concurrency: 8,
    /** How long a handler may take, from when its task was claimed. */
    handlerMs: 10_000,
    /** A task that is processing for longer has lost its worker. */
    processingMs: 30_000,
    /** Attempts until a task is dead: with the pauses below, 1 h 45 min of an outage outside are outlived. */
    attempts: 20,
    /** The pause after the first failed attempt; it doubles with each, up to the most. */
    backoffMs: 1_000,
    backoffMostMs: 600_000,
    /** How long an idle worker's read waits inside Redis. */
    blockMs: 5_000,
    /** Before a worker asks a store again that did not answer. */
    againMs: 500,
    /** How long a stop waits for tasks that are under way; then they are given back. */
    stopMs: 3_000,
  },
  /**
   * Requests of one connection that are not answered, or whose answer is not sent. Browsers and the usual clients have one at
   * a time; a client that pipelines this many gains nothing from more.
   */
  requestsPerConnection: 100,
  /** An error that repeats is logged at once, and then once in this time with its count: an outage must not fill a disk. */
  repeatedErrorMs: 10_000,
  /** How long a stop waits for requests that are under way. */
  shutdownMs: 10_000,
  /** `Retry-After` of a `busy` answer, in seconds. */
  retryAfterS: 1,
  /** The same of an `unknown-outcome` answer: by then the stores carry out no request of the attempt any more. */
  unknownRetryAfterS: 4,
} as const;

// One slow command must not cost the lease.
if (limits.attemptLeaseMs <= limits.redisCommandMs) {
  throw new Error('limits: attemptLeaseMs must exceed redisCommandMs');
}
// An order that has waited as long as it may still has time for its commit.
if (limits.claimMs < limits.commitWaitMs + limits.claimMarginMs + limits.claimLeastMs) {
  throw new Error('limits: claimMs must exceed commitWaitMs, claimMarginMs and claimLeastMs together');
}
// The deadline of a statement is over when a customer asks again.
if (limits.unknownRetryAfterS * 1_000 <= Math.max(limits.postgresStatementMs, limits.redisCommandMs)) {
  throw new Error('limits: unknownRetryAfterS must exceed postgresStatementMs and redisCommandMs');
}
// What recovery promises: everything is settled within 10 s of a restart.
if (limits.claimMs + 2 * limits.reapEveryMs > 10_000) {
  throw new Error('limits: claimMs + 2 × reapEveryMs must stay within 10 s');
}
// A worker that lives marks its task before it is taken back: the handler ends in time, and the mark is tried twice.
if (limits.tasks.processingMs < limits.tasks.handlerMs + 2 * limits.postgresStatementMs) {
  throw new Error('limits: tasks.processingMs must exceed tasks.handlerMs and two statements');
}
// A dispatcher that lives has enqueued what it marked before it is taken back.
if (limits.tasks.queuedMs < limits.postgresStatementMs + limits.redisCommandMs) {
  throw new Error('limits: tasks.queuedMs must exceed a statement and a command');
}

/** The bounds of the outbox, as numbers: tests have others. */
export type TaskBounds = { readonly [Bound in keyof typeof limits.tasks]: number };
