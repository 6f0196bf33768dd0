/** What an error of ioredis or of Redis means: see domain/failure.ts. */
import { type ExpectedFailure, type Failure, FailureError } from '../../domain/failure.ts';
import { redisFailure } from '../../locks/adapters/redis-errors.ts';

/**
 * Classifies an error of ioredis or Redis. Never throws. A defect is a reply that no state of a healthy Redis explains
 * (WRONGTYPE, a script's own error): Redis rejected this command and would accept another one.
 */
export function classifyRedisError(error: unknown): Failure {
  if (error instanceof FailureError && error.store === 'redis') return error.failure;
  return redisFailure(error) ?? { kind: 'defect', reason: 'defect', error };
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

/** The rule of an ACL that a denied command lacks. */
export function missingRule(command: string, { message }: Error): string {
  const kind = /access (?:one of the|a) (key|channel)/.exec(message)?.[1];
  if (kind === undefined) return `+${command}`;
  return kind === 'key' ? "'~stampede:*'" : "'&stampede:*'";
}
