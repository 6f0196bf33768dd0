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

  /** Orders in one statement: 256 reach about 100,000 orders/s on one hot row; more add only latency. */
  writerBatchSize: 256,
  /** Statements under way at once: one runs while the next is gathered. */
  writerInFlight: 2,
  /** Orders waiting for the writer; beyond that an attempt is told `busy` and its unit goes back. */
  writerQueue: 10_000,
  /** An order that has waited longer is told `busy`, and its unit goes back. */
  writerWaitMs: 4_000,
  /** A batch is not tried again after this. */
  writerPatienceMs: 4_000,
  /** How often a batch that met a deadlock or a serialization failure is sent again. */
  writerRetries: 5,

  /** A reservation this old is taken for abandoned. Should its writer be alive after all, both do the same thing. */
  recoverAfterMs: 6_000,
  recoverEveryMs: 1_000,
  /** Reservations that one pass of the recovery settles for one sale. */
  recoverBatch: 500,
  /** How long a stop waits for requests that are under way. */
  shutdownMs: 10_000,
  /** `Retry-After` of a `busy` answer, in seconds. */
  retryAfterS: 1,
} as const;

// Recovery should rarely meet a writer that is still at work.
if (limits.recoverAfterMs <= limits.writerWaitMs) {
  throw new Error('limits: recoverAfterMs must exceed writerWaitMs');
}
// What recovery promises: everything is settled within 10 s of a restart.
if (limits.recoverAfterMs + 2 * limits.recoverEveryMs > 10_000) {
  throw new Error('limits: recoverAfterMs + 2 × recoverEveryMs must stay within 10 s');
}
