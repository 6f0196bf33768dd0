/**
 * What an error of Postgres, pg or Prisma means: see domain/failure.ts. A commit is also unknown whose wait for its synchronous standby
 * was cancelled: it is lost if the standby is promoted.
 *
 * Sources, the innermost error first (Prisma wraps the driver's error, which says more):
 *
 *   SQLSTATE by class   23 rejected; 25, 28, 3D, 40, 53, 55, 57, 58, XX unavailable or a conflict; FATAL 08, 53, 57, 58, XX and
 *                       every PANIC unknown, unless it answers a login; else a defect
 *   kind                of Prisma's driver adapter, which drops the driver's own code
 *   Prisma's code       P2028; with every other code comes a kind
 *   Node's code         no connection was made: not sent; it broke: unknown
 *   pg's message        for errors of pg without a code
 */
import pg from 'pg';
import { type ExpectedFailure, type Failure, FailureError, type Rejected } from '../../domain/failure.ts';
import { ENDS_CONNECTION, isRolledBack } from '../../locks/adapters/postgres-errors.ts';

const notSent = (reason: string): Failure => ({ kind: 'not-sent', reason });
const conflict = (reason: string): Failure => ({ kind: 'conflict', reason });
const unavailable = (reason: string): Failure => ({ kind: 'unavailable', reason });
const LOST = { kind: 'unknown', reason: 'postgres-connection-lost' } as const satisfies Failure;
const UNREACHABLE = notSent('postgres-unreachable');

/** Single SQLSTATEs; the class decides about the others. */
const CONFLICTS = new Map([
  ['40001', 'serialization-failure'],
  ['40P01', 'deadlock'],
  ['26000', 'not-prepared'], // the statement before it on its connection would have prepared it, and failed
  ['ST001', 'deadline-passed'], // by before_deadline
  ['ST003', 'sale-changed-meanwhile'], // by unless_paused, in_limit_group
]);
const REASONS = new Map([
  ['55P03', 'lock-timeout'],
  ['57014', 'statement-timeout'],
  ['25P03', 'transaction-timeout'],
  ['25P04', 'transaction-timeout'],
  ['25P02', 'transaction-aborted'],
  ['53100', 'postgres-disk-full'],
  ['53200', 'postgres-out-of-memory'],
  ['53300', 'too-many-connections'],
  ['53400', 'limit-exceeded'],
  ['57P03', 'postgres-starting'],
  ['25006', 'postgres-read-only'],
]);
/** By the function in_epoch: the sale was loaded in another epoch of Redis after an order was reserved. */
const ANOTHER_EPOCH = 'ST002';
/** By the trigger count_customer_units: a customer would have more units than a sale allows. */
const CUSTOMER_LIMIT = 'ST004';
const REJECTED = new Set([
  ANOTHER_EPOCH,
  CUSTOMER_LIMIT,
  'P0001', // an operator's or a trigger's own rejection (RAISE EXCEPTION)
]);
const UNAVAILABLE_CLASSES = new Map([
  ['08', 'remote-connection'],
  ['25', 'transaction-state'],
  ['28', 'postgres-rejects-login'],
  ['3D', 'no-such-database'],
  ['40', 'rolled-back'],
  ['53', 'postgres-out-of-resources'],
  ['55', 'postgres-not-ready'],
  ['57', 'postgres-intervened'],
  ['58', 'postgres-system-error'],
  ['XX', 'postgres-internal-error'],
]);
/** Corrupted data: no retry helps, so it must not be mistaken for load. */
const CORRUPTED = new Set(['XX001', 'XX002']);
/** FATAL of these classes answers a login. */
const OF_A_LOGIN = new Set(['28', '3D']);
/** FATAL without a running statement: Postgres is starting or stopping, is full, or the session was idle for too long. */
const BEFORE_STATEMENT = new Set(['53300', '57P03', '57P05']);

const BY_KIND = new Map<string, Failure>([
  ['DatabaseNotReachable', UNREACHABLE],
  ['TlsConnectionError', UNREACHABLE],
  ['DatabaseDoesNotExist', notSent('no-such-database')],
  ['DatabaseAccessDenied', notSent('postgres-rejects-login')],
  ['AuthenticationFailed', notSent('postgres-rejects-login')],
  ['TooManyConnections', notSent('too-many-connections')],
  ['TransactionWriteConflict', conflict('write-conflict')],
  ['TransactionAlreadyClosed', unavailable('transaction-timeout')],
  ['ConnectionClosed', LOST],
  ['SocketTimeout', LOST],
]);

const BY_CODE = new Map<string, Failure>([
  ['P2028', notSent('no-transaction-in-time')],
  ...['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EADDRNOTAVAIL', 'EMFILE', 'ENFILE'].map(
    (code) => [code, UNREACHABLE] as const,
  ),
  ...[
    'ECONNRESET',
    'ECONNABORTED',
    'EPIPE',
    'ETIMEDOUT',
    'EHOSTUNREACH',
    'ENETUNREACH',
    'ENETDOWN',
    'ENETRESET',
    'ENOTCONN',
    'ERR_STREAM_DESTROYED',
    'ERR_STREAM_WRITE_AFTER_END',
  ].map((code) => [code, LOST] as const),
]);
const CONNECTING = new Set(['connect', 'getaddrinfo']);

const BY_MESSAGE: readonly (readonly [RegExp, Failure])[] = [
  [
    /timeout exceeded when trying to connect|Connection terminated due to connection timeout|^timeout expired$/i,
    notSent('no-connection-in-time'),
  ],
  [/Cannot use a pool after calling end|Client was closed and is not queryable/i, notSent('shutting-down')],
  [/does not support SSL|establishing an SSL connection/i, UNREACHABLE],
  [/Connection terminated|not queryable|Query read timeout|connection error|Connection ended/i, LOST],
];

/** Classifies an error of Postgres, pg or Prisma. Never throws. */
export function classifyPostgresError(error: unknown): Failure {
  for (const layer of layersOf(error).reverse()) {
    const failure = failureOfLayer(layer);
    if (failure === 'defect') break;
    if (failure !== null) return failure;
  }
  return { kind: 'defect', reason: 'defect', error };
}

/** The same for errors that a caller can handle. @throws the error itself when it is a defect */
export function expectedPostgresFailure(error: unknown): ExpectedFailure {
  const failure = classifyPostgresError(error);
  if (failure.kind === 'defect') throw error;
  return failure;
}

/**
 * Whether Postgres rejected a statement because of its rows (a constraint, a trigger with any SQLSTATE, a value), and so would
 * accept other rows. False: Postgres lacks resources, accepts no writes or is stopping; a lock timed out; no answer came.
 */
export function isRowError(error: unknown): boolean {
  if (!isAnswer(error)) return false;
  const { code = '' } = error as pg.DatabaseError;
  return !OF_THE_SERVER.has(code.slice(0, 2)) && code !== '55P03' && !isPlanChanged(error);
}
const OF_THE_SERVER = new Set(['25', '53', '57']);

/**
 * Whether the connection has prepared the statement for an earlier type of a column ("cached plan must not change result type"):
 * it fails there for good, until it is prepared again (see pool.ts).
 */
export const isPlanChanged = (error: unknown): boolean =>
  error instanceof pg.DatabaseError && error.code === '0A000' && error.routine === 'RevalidateCachedQuery';

/** Whether it is certain that nothing was written: Postgres rejected the statement, could not begin it, or replied with an error. */
export function wroteNothing(error: unknown): boolean {
  const { kind } = classifyPostgresError(error);
  if (kind !== 'defect') return kind !== 'unknown';
  return layersOf(error).some((layer) => {
    const state = stateOf(layer);
    return state !== null && isRolledBack(String(layer.severity ?? 'ERROR'), state);
  });
}

/** The write before this read has happened, but its outcome cannot be read. */
export const UNREAD = 'outcome-unread';

/**
 * Reads the outcome of a write that has happened.
 * @returns UNREAD when Postgres cannot be read, whatever the kind of failure
 * @throws a defect
 */
export async function afterWrite<T>(read: Promise<T>): Promise<T | typeof UNREAD> {
  try {
    return await read;
  } catch (error) {
    expectedPostgresFailure(error);
    return UNREAD;
  }
}

/** Whether a statement waited too long for a lock: statements on other rows may succeed. */
export function isHeldUp(error: unknown): boolean {
  return HELD_UP.has(classifyPostgresError(error).reason);
}
const HELD_UP = new Set(['lock-timeout', 'statement-timeout', 'deadlock', 'serialization-failure']);

/** Whether pg gave up waiting for a reply, and left the connection open. */
export const isReadTimeout = ({ message }: Error): boolean => message === 'Query read timeout';

/** Whether a statement reached Postgres after its deadline by Postgres's clock: see store/late-requests.ts. */
export const isDeadlinePassed = (error: unknown): boolean =>
  classifyPostgresError(error).reason === 'deadline-passed';

/**
 * Whether the state of the tables explains why Postgres rejected orders: one exists, units are missing, a sale was loaded in another epoch
 * of Redis since they were reserved, or a customer has as many units as a sale allows.
 */
export const isOfState = ({ code, constraint }: Rejected): boolean =>
  code === ANOTHER_EPOCH || code === CUSTOMER_LIMIT || OF_STATE.has(constraint ?? '');
const OF_STATE = new Set(['orders_pkey', 'orders_one_active_per_customer', 'sales_sold_within_stock']);

/** Whether a customer would have more units than a sale allows. */
export function isBeyondLimit(error: unknown): boolean {
  const failure = classifyPostgresError(error);
  return failure.kind === 'rejected' && failure.code === CUSTOMER_LIMIT;
}

/** Whether Postgres answered with an error: it rolled the statement back, and the connection stays usable. */
export function isAnswer(error: unknown): boolean {
  if (!(error instanceof pg.DatabaseError) || 'syscall' in error) return false; // that of a login: see pool.ts
  return isRolledBack(error.severity, error.code ?? '');
}

/** The known properties of an error, or of one that it wraps. */
interface Layer {
  readonly code?: unknown;
  readonly originalCode?: unknown;
  readonly originalMessage?: unknown;
  readonly kind?: unknown;
  readonly severity?: unknown;
  readonly syscall?: unknown;
  readonly message?: unknown;
  readonly constraint?: unknown;
  readonly cause?: unknown;
  readonly meta?: { readonly driverAdapterError?: unknown };
}

/** The error and the errors that it wraps, the outermost first. */
function layersOf(error: unknown): Layer[] {
  const layers: Layer[] = [];
  let current = error;
  while (typeof current === 'object' && current !== null && layers.length < 8) {
    const layer: Layer = current;
    layers.push(layer);
    current = layer.meta?.driverAdapterError ?? layer.cause;
  }
  return layers;
}

function failureOfLayer(layer: Layer): Failure | 'defect' | null {
  if (layer instanceof FailureError && layer.store === 'postgres') return layer.failure;
  if (isPlanChanged(layer)) return conflict('plan-changed');
  const message = String(layer.originalMessage ?? layer.message ?? '');
  const state = stateOf(layer);
  if (state !== null) {
    const failure = failureOfState(state, String(layer.severity ?? 'ERROR'), constraintOf(layer, message));
    const isLogin = failure !== 'defect' && CONNECTING.has(String(layer.syscall));
    return isLogin ? notSent(failure.reason === LOST.reason ? UNREACHABLE.reason : failure.reason) : failure;
  }
  const byKind = BY_KIND.get(String(layer.kind));
  if (byKind !== undefined) return byKind;
  if (CONNECTING.has(String(layer.syscall))) return UNREACHABLE;
  const byCode = BY_CODE.get(String(layer.code));
  if (byCode !== undefined) return byCode;
  return BY_MESSAGE.find(([pattern]) => pattern.test(message))?.[1] ?? null;
}

/** The SQLSTATE of an error that Postgres sent; null for any other error. */
function stateOf({ code, originalCode, severity }: Layer): string | null {
  const state = String(originalCode ?? (severity === undefined ? '' : code));
  return /^[0-9A-Z]{5}$/.test(state) ? state : null;
}

/** The meaning of an SQLSTATE. */
function failureOfState(code: string, severity: string, constraint: string): Failure | 'defect' {
  const group = code.slice(0, 2);
  // ERROR rolled the statement back: a trigger may raise 08… when a server that it calls is unreachable.
  const isEnd = !isRolledBack(severity, code);
  const isAmid = severity === 'PANIC' || (ENDS_CONNECTION.has(group) && !BEFORE_STATEMENT.has(code));
  if (code === '40003' || (isEnd && isAmid)) return LOST;
  if (group === '23') return rejected(code, constraint || code);
  if (REJECTED.has(code)) return rejected(code, null);
  if (CONFLICTS.has(code)) return conflict(CONFLICTS.get(code)!);
  const reason = CORRUPTED.has(code) ? undefined : (REASONS.get(code) ?? UNAVAILABLE_CLASSES.get(group));
  if (reason === undefined) return 'defect';
  const isBefore = isEnd && (BEFORE_STATEMENT.has(code) || OF_A_LOGIN.has(group));
  return isBefore ? notSent(reason) : unavailable(reason);
}

/** A write that Postgres rejected, and would reject again, with whatever else its statement wrote. */
export function rejected(code: string, constraint: string | null = code): Rejected {
  const reason = constraint === null ? 'rejected-by-postgres' : `rejected-by-postgres:${constraint}`;
  return { kind: 'rejected', reason, constraint, code };
}

function constraintOf({ constraint }: Layer, message: string): string {
  if (typeof constraint === 'string') return constraint;
  return /constraint "([^"]+)"/.exec(message)?.[1] ?? '';
}
