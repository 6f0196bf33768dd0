/**
 * What an error of Postgres, pg or Prisma says about the write that met it:
 *
 *   refused   Postgres answered no, and nothing was written (a constraint)
 *   busy      Postgres gave up or could not begin; nothing was written; trying again may help
 *   unknown   the connection was lost while a statement was running: it may have been committed
 *
 * Whatever fits none of these is a defect. Sources, the innermost error first (Prisma wraps the driver's, which says more):
 *
 *   SQLSTATE by class   23 refused; 25, 28, 3D, 40, 53, 55, 57, 58, XX busy; FATAL 57, 58, XX and all 08 unknown; else a defect
 *   kind                of Prisma's driver adapter, where the driver's own code is gone
 *   Prisma's code       P1…, P2…
 *   Node's code         no connection was made: busy; it broke: unknown
 *   pg's message        for what pg says without a code
 */
import pg from 'pg';
import { UnansweredError } from '../late-requests.ts';

/** What a failed statement means for the attempt that sent it. */
export type PostgresFailure =
  | { readonly kind: 'refused'; readonly constraint: string; readonly code: string }
  | { readonly kind: 'busy'; readonly reason: string }
  | {
      readonly kind: 'unknown';
      readonly reason: string;
      /** Until when the statement may still be carried out, by Postgres's clock: see late-requests.ts; 0: it is not late. */
      readonly lateUntilMs?: number;
    };

const busy = (reason: string): PostgresFailure => ({ kind: 'busy', reason });
const LOST = { kind: 'unknown', reason: 'postgres-connection-lost' } as const satisfies PostgresFailure;
const UNREACHABLE = busy('postgres-unreachable');

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
  // An operator's or a trigger's own refusal (RAISE EXCEPTION) rolled the statement back.
  ['P0001', 'refused-by-postgres'],
  ['ST001', 'deadline-passed'], // by before_deadline
]);
const BUSY_CLASSES = new Map([
  ['08', 'remote-connection'],
  ['25', 'transaction-state'],
  ['28', 'postgres-refuses-login'],
  ['3D', 'no-such-database'],
  ['40', 'rolled-back'],
  ['53', 'postgres-out-of-resources'],
  ['55', 'postgres-not-ready'],
  ['57', 'postgres-intervened'],
  ['58', 'postgres-system-error'],
  ['XX', 'postgres-internal-error'],
]);
/** Corrupted data: no repeat helps, so it must not pass as load. */
const CORRUPTED = new Set(['XX001', 'XX002']);
/** Of these a FATAL ends a connection that had a statement; the other classes' comes before the first one. */
const ENDS_CONNECTION = new Set(['57', '58', 'XX']);
/** FATAL, and yet no statement was running: Postgres starts or stops, or waited for the next one in vain. */
const BEFORE_STATEMENT = new Set(['57P03', '57P05']);

const BY_KIND = new Map<string, PostgresFailure>([
  ['DatabaseNotReachable', UNREACHABLE],
  ['TlsConnectionError', UNREACHABLE],
  ['DatabaseDoesNotExist', busy('no-such-database')],
  ['DatabaseAccessDenied', busy('postgres-refuses-login')],
  ['AuthenticationFailed', busy('postgres-refuses-login')],
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
  ['P1000', busy('postgres-refuses-login')],
  ['P1001', UNREACHABLE],
  ['P1002', UNREACHABLE],
  ['P1003', busy('no-such-database')],
  ['P1010', busy('postgres-refuses-login')],
  ['P1011', UNREACHABLE],
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

/**
 * Sorts an error of Postgres, pg or Prisma.
 * @throws the error itself when it is none of these: a defect, which must not pass as load.
 */
export function classifyPostgresError(error: unknown): PostgresFailure {
  if (error instanceof UnansweredError) return { ...LOST, lateUntilMs: error.lateUntilMs };
  if (error instanceof UnreadOutcome) return { kind: 'unknown', reason: 'outcome-unread' };
  for (const layer of layersOf(error).reverse()) {
    const failure = failureOfLayer(layer);
    if (failure === 'defect') break;
    if (failure !== null) return failure;
  }
  throw error;
}

/**
 * Whether Postgres refuses what is in the rows of a statement (a constraint, a trigger with whatever SQLSTATE, a value), and so
 * would take others. False: Postgres has no resources, takes no writes or is stopping; or a lock was not had in time; or the
 * statement was not answered at all.
 */
export function blamesRows(error: unknown): boolean {
  if (!isAnswer(error)) return false;
  const { code = '' } = error as pg.DatabaseError;
  return !OF_THE_SERVER.has(code.slice(0, 2)) && code !== '55P03';
}
const OF_THE_SERVER = new Set(['25', '53', '57']);

/** Whether it is sure that nothing was written: Postgres refused or could not begin, or answered with an error. */
export function wroteNothing(error: unknown): boolean {
  try {
    return classifyPostgresError(error).kind !== 'unknown';
  } catch {
    return layersOf(error).some(
      (layer) => stateOf(layer) !== null && (layer.severity ?? 'ERROR') === 'ERROR',
    );
  }
}

/**
 * Reads what a write before it came to. When Postgres cannot be read, the write has happened all the same: the error then
 * says that the outcome is not known, whatever kind of failure the read met.
 */
export async function afterWrite<T>(read: Promise<T>): Promise<T> {
  try {
    return await read;
  } catch (error) {
    classifyPostgresError(error); // a defect is thrown as it is
    throw new UnreadOutcome('the outcome of a write cannot be read', { cause: error });
  }
}

class UnreadOutcome extends Error {
  override readonly name = 'UnreadOutcome';
  readonly code = 'ERR_STAMPEDE_OUTCOME_UNREAD';
}

/** Whether a statement waited too long for a lock, so that statements on other rows may succeed. */
export function isHeldUp(error: unknown): boolean {
  try {
    const failure = classifyPostgresError(error);
    return failure.kind === 'busy' && HELD_UP.has(failure.reason);
  } catch {
    return false;
  }
}
const HELD_UP = new Set(['lock-timeout', 'statement-timeout', 'deadlock', 'serialization-failure']);

/** Whether Postgres answered with an error: the statement was rolled back, and the connection goes on. */
export function isAnswer(error: unknown): boolean {
  return error instanceof pg.DatabaseError && error.severity === 'ERROR';
}

/** An error, or one that it wraps, as far as anything is known of it. */
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

/** The error and what it wraps, the outermost first. */
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

/** The SQLSTATE of an answer of Postgres; null: it is none. */
function stateOf({ code, originalCode, severity }: Layer): string | null {
  const state = String(originalCode ?? (severity === undefined ? '' : code));
  return /^[0-9A-Z]{5}$/.test(state) ? state : null;
}

/** What an answer of Postgres means. */
function failureOfState(code: string, severity: string, constraint: string): PostgresFailure | 'defect' {
  const group = code.slice(0, 2);
  if (group === '23') return { kind: 'refused', constraint, code };
  // An answer with ERROR rolled the statement back: a trigger may raise 08… when a server that it asks is away.
  if (code === '40003' || (group === '08' && severity !== 'ERROR')) return LOST;
  if (severity !== 'ERROR' && ENDS_CONNECTION.has(group) && !BEFORE_STATEMENT.has(code)) return LOST;
  const reason = CORRUPTED.has(code) ? undefined : (REASONS.get(code) ?? BUSY_CLASSES.get(group));
  return reason === undefined ? 'defect' : busy(reason);
}

function constraintOf({ constraint }: Layer, message: string): string {
  if (typeof constraint === 'string') return constraint;
  return /constraint "([^"]+)"/.exec(message)?.[1] ?? '';
}
