/**
 * What an error from Postgres, pg or Prisma says about the write that caused it:
 *
 *   rejected   Postgres rejected the statement because of a constraint; nothing was written
 *   busy       Postgres gave up or could not begin; nothing was written; a retry may help
 *   unknown    the connection was lost while a statement was running: it may have been committed. Or it is committed, but the
 *              wait for its synchronous standby was cancelled: it is lost if that is promoted
 *   defect     none of these: the caller rethrows the error, so that a defect is never mistaken for load
 *
 * Sources, the innermost error first (Prisma wraps the driver's error, which says more):
 *
 *   SQLSTATE by class   23 rejected; 25, 28, 3D, 40, 53, 55, 57, 58, XX busy; FATAL 57, 58, XX and all 08 unknown; else a defect
 *   kind                of Prisma's driver adapter, which drops the driver's own code
 *   Prisma's code       P1…, P2…
 *   Node's code         no connection was made: busy; it broke: unknown
 *   pg's message        for errors of pg without a code
 */
import pg from 'pg';

/** What a failed statement means for its sender. */
export type PostgresFailure =
  | { readonly kind: 'rejected'; readonly constraint: string; readonly code: string }
  | { readonly kind: 'busy'; readonly reason: string }
  | { readonly kind: 'unknown'; readonly reason: string }
  | { readonly kind: 'defect'; readonly reason: 'defect'; readonly error: unknown };

const busy = (reason: string): PostgresFailure => ({ kind: 'busy', reason });
const LOST = { kind: 'unknown', reason: 'postgres-connection-lost' } as const satisfies PostgresFailure;
const UNREACHABLE = busy('postgres-unreachable');

/** The reason of `busy` when a sale was loaded in another epoch of Redis after an order was reserved. */
export const SUPERSEDED = 'reserved-in-another-epoch';

/** Names of single SQLSTATEs; the class decides about the others. */
const REASONS = new Map([
  ['40001', 'serialization-failure'],
  ['40P01', 'deadlock'],
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
  // An operator's or a trigger's own rejection (RAISE EXCEPTION) rolled the statement back.
  ['P0001', 'rejected-by-postgres'],
  ['ST001', 'deadline-passed'], // by before_deadline
  ['ST002', SUPERSEDED], // by in_epoch
]);
const BUSY_CLASSES = new Map([
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
/** A FATAL of these classes ends a connection in the middle of a statement; a FATAL of the others comes before the first. */
const ENDS_CONNECTION = new Set(['57', '58', 'XX']);
/** FATAL without a running statement: Postgres is starting or stopping, or the session was idle for too long. */
const BEFORE_STATEMENT = new Set(['57P03', '57P05']);

const BY_KIND = new Map<string, PostgresFailure>([
  ['DatabaseNotReachable', UNREACHABLE],
  ['TlsConnectionError', UNREACHABLE],
  ['DatabaseDoesNotExist', busy('no-such-database')],
  ['DatabaseAccessDenied', busy('postgres-rejects-login')],
  ['AuthenticationFailed', busy('postgres-rejects-login')],
  ['TooManyConnections', busy('too-many-connections')],
  ['TransactionWriteConflict', busy('write-conflict')],
  ['TransactionAlreadyClosed', busy('transaction-timeout')],
  ['ConnectionClosed', LOST],
  ['SocketTimeout', LOST],
]);

const BY_CODE = new Map<string, PostgresFailure>([
  ['P2034', busy('write-conflict')],
  ['P2028', busy('no-transaction-in-time')],
  ['P2024', busy('no-connection-in-time')],
  ['P2037', busy('too-many-connections')],
  ['P1000', busy('postgres-rejects-login')],
  ['P1001', UNREACHABLE],
  ['P1002', UNREACHABLE],
  ['P1003', busy('no-such-database')],
  ['P1010', busy('postgres-rejects-login')],
  ['P1011', UNREACHABLE],
  ['ERR_STAMPEDE_NOT_REPLICATED', { kind: 'unknown', reason: 'commit-not-replicated' }],
  ['P1008', LOST],
  ['P1017', LOST],
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

const BY_MESSAGE: readonly (readonly [RegExp, PostgresFailure])[] = [
  [
    /timeout exceeded when trying to connect|Connection terminated due to connection timeout|^timeout expired$/i,
    busy('no-connection-in-time'),
  ],
  [/Cannot use a pool after calling end|Client was closed and is not queryable/i, busy('shutting-down')],
  [/does not support SSL|establishing an SSL connection/i, UNREACHABLE],
  [/Connection terminated|not queryable|Query read timeout|connection error|Connection ended/i, LOST],
];

/** Reasons of `busy` after which an immediate retry may succeed. */
export const CONFLICTS: ReadonlySet<string> = new Set([
  'deadlock',
  'serialization-failure',
  'write-conflict',
  'deadline-passed',
  'plan-changed',
]);

/** An operator cancelled the wait of a commit for its synchronous standby: the rows are visible, and a promoted standby may lack them. */
export class NotReplicatedError extends Error {
  override readonly name = 'NotReplicatedError';
  readonly code = 'ERR_STAMPEDE_NOT_REPLICATED';

  constructor() {
    super('committed, but the wait for the synchronous standby was cancelled');
  }
}

/** Classifies an error of Postgres, pg or Prisma. Never throws. */
export function classifyPostgresError(error: unknown): PostgresFailure {
  for (const layer of layersOf(error).reverse()) {
    const failure = isPlanChanged(layer) ? busy('plan-changed') : failureOfLayer(layer);
    if (failure === 'defect') break;
    if (failure !== null) return failure;
  }
  return { kind: 'defect', reason: 'defect', error };
}

/** The same for errors that a caller can handle. @throws the error itself when it is a defect */
export function expectedPostgresFailure(error: unknown): Exclude<PostgresFailure, { kind: 'defect' }> {
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
  return layersOf(error).some((layer) => stateOf(layer) !== null && (layer.severity ?? 'ERROR') === 'ERROR');
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
  const failure = classifyPostgresError(error);
  return failure.kind === 'busy' && HELD_UP.has(failure.reason);
}
const HELD_UP = new Set(['lock-timeout', 'statement-timeout', 'deadlock', 'serialization-failure']);

/** Whether Postgres answered with an error: it rolled the statement back, and the connection stays usable. */
export function isAnswer(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.severity === 'ERROR';
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

function failureOfLayer(layer: Layer): PostgresFailure | 'defect' | null {
  const message = String(layer.originalMessage ?? layer.message ?? '');
  const state = stateOf(layer);
  if (state !== null) {
    return failureOfState(state, String(layer.severity ?? 'ERROR'), constraintOf(layer, message));
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
function failureOfState(code: string, severity: string, constraint: string): PostgresFailure | 'defect' {
  const group = code.slice(0, 2);
  if (group === '23') return { kind: 'rejected', constraint, code };
  // ERROR rolled the statement back: a trigger may raise 08… when a server that it calls is unreachable.
  if (code === '40003' || (group === '08' && severity !== 'ERROR')) return LOST;
  if (severity !== 'ERROR' && ENDS_CONNECTION.has(group) && !BEFORE_STATEMENT.has(code)) return LOST;
  const reason = CORRUPTED.has(code) ? undefined : (REASONS.get(code) ?? BUSY_CLASSES.get(group));
  return reason === undefined ? 'defect' : busy(reason);
}

function constraintOf({ constraint }: Layer, message: string): string {
  if (typeof constraint === 'string') return constraint;
  return /constraint "([^"]+)"/.exec(message)?.[1] ?? '';
}
