/** What an error of ioredis or of Redis means: see domain/failure.ts. */
import { type ExpectedFailure, type Failure, FailureError } from '../../domain/failure.ts';

/** Errors of ioredis for a command that it did not send. */
const NOT_SENT =
  /enableOfflineQueue|isn't writeable|ECONNREFUSED|ENOTFOUND|EAI_AGAIN|^connect E|max number of clients reached|Too many Cluster redirections/;
/** Replies to a command that did not run: Redis is not ready for it, or this connection may not send it. */
const NOT_RUN =
  /^(?:ERR Error running script.*? -?)?(LOADING|BUSY|UNKILLABLE|OOM|READONLY|MASTERDOWN|NOREPLICAS|CLUSTERDOWN|TRYAGAIN|MISCONF|NOAUTH|WRONGPASS|NOPERM)\b/;
const NO_ANSWER =
  /Command timed out|Connection is closed|aborted due to connection close|Socket timeout|ECONNRESET|ECONNABORTED|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|max retries/i;
/** A reply to a command that the user may not send. In a script, what ran before that command has its effect. */
const DENIED =
  /^NOPERM\b|^ERR Error running script.*NOPERM\b|^ERR (The user executing the script can't |ACL failure in script: )/;

/**
 * Classifies an error of ioredis or Redis. Never throws. A defect is a reply that no state of a healthy Redis explains
 * (WRONGTYPE, a script's own error): Redis rejected this command and would accept another one.
 */
export function classifyRedisError(error: unknown): Failure {
  if (error instanceof FailureError && error.store === 'redis') return error.failure;
  const { message = '', name = '' } = error as Error;
  if (isDenied(error as Error) && !message.startsWith('NOPERM'))
    return { kind: 'unknown', reason: 'redis-noperm' };
  if (NOT_SENT.test(message)) return { kind: 'not-sent', reason: 'redis-unreachable' };
  const reply = NOT_RUN.exec(message)?.[1];
  if (reply !== undefined) return { kind: 'unavailable', reason: `redis-${reply.toLowerCase()}` };
  if (NO_ANSWER.test(message) || name === 'MaxRetriesPerRequestError') {
    return { kind: 'unknown', reason: 'redis-no-answer' };
  }
  return { kind: 'defect', reason: 'defect', error };
}

/** The same for errors that a caller handles. @throws the error itself when it is a defect */
export function expectedRedisFailure(error: unknown): ExpectedFailure {
  const failure = classifyRedisError(error);
  if (failure.kind === 'defect') throw error;
  return failure;
}

export const isRedisDefect = (error: unknown) => classifyRedisError(error).kind === 'defect';

/** Whether Redis answered a command with an error, or never got it: the command has no effect, now or later. */
export const hasNoEffect = (error: unknown): boolean =>
  (error as Error).name === 'ReplyError' || classifyRedisError(error).kind === 'not-sent';

/** Whether the user of Redis may not send a command. */
export const isDenied = ({ message }: Error) => DENIED.test(message);

/** The rule of an ACL that a denied command lacks. */
export function missingRule(command: string, { message }: Error): string {
  const kind = /access (?:one of the|a) (key|channel)/.exec(message)?.[1];
  if (kind === undefined) return `+${command}`;
  return kind === 'key' ? "'~stampede:*'" : "'&stampede:*'";
}

/** Whether a primary has become a replica: it accepts no write. */
export const isReadOnly = ({ message }: Error) => message.startsWith('READONLY');
