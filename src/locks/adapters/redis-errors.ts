/** What an error of a client of Redis, or of Redis, means. Only their messages say it. */

export interface RedisFailure {
  /** `not-sent` and `unavailable`: the command has no effect; `unknown`: it may have run, or may yet. */
  readonly kind: 'not-sent' | 'unavailable' | 'unknown';
  readonly reason: string;
}

/** Errors of ioredis and node-redis for a command that they did not send. */
const NOT_SENT =
  /enableOfflineQueue|isn't writeable|ECONNREFUSED|ENOTFOUND|EAI_AGAIN|^connect E|max number of clients reached|Too many Cluster redirections|^The client is (offline|closed)$|^Connection timeout$|^All the root nodes are unavailable$/;
/** Replies to a command that did not run: Redis is not ready for it, or this connection may not send it. */
const NOT_RUN =
  /^(?:ERR Error running script.*? -?)?(LOADING|BUSY|UNKILLABLE|OOM|READONLY|MASTERDOWN|NOREPLICAS|CLUSTERDOWN|TRYAGAIN|MISCONF|NOAUTH|WRONGPASS|NOPERM)\b/;
const NO_ANSWER =
  /Command timed out|Connection is closed|Socket closed unexpectedly|Disconnects client|The command was aborted|aborted due to connection close|Socket timeout|ECONNRESET|ECONNABORTED|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH|max retries|no valid master node/i;
/** A reply to a command that the user may not send. In a script, what ran before that command has its effect. */
const DENIED =
  /^NOPERM\b|^ERR Error running script.*NOPERM\b|^ERR (The user executing the script can't |ACL failure in script: )/;

/** @returns null: no state of a healthy Redis explains the error (WRONGTYPE, a script's own error) */
export function redisFailure(error: unknown): RedisFailure | null {
  const { message = '', name = '' } = error as Error;
  if (isDenied(error as Error) && !message.startsWith('NOPERM'))
    return { kind: 'unknown', reason: 'redis-noperm' };
  if (NOT_SENT.test(message)) return { kind: 'not-sent', reason: 'redis-unreachable' };
  const reply = NOT_RUN.exec(message)?.[1];
  if (reply !== undefined) return { kind: 'unavailable', reason: `redis-${reply.toLowerCase()}` };
  if (NO_ANSWER.test(message) || name === 'MaxRetriesPerRequestError')
    return { kind: 'unknown', reason: 'redis-no-answer' };
  return null;
}

/** @returns the failure @throws the error itself when it is a defect */
export function explainRedis(error: unknown): RedisFailure {
  const failure = redisFailure(error);
  if (failure === null) throw error;
  return failure;
}

/** Of a promise that may be rejected because a slot is moving, or has moved, to another server of the cluster: whether it was not. */
export const isStill = (request: Promise<unknown>): Promise<boolean> =>
  request.then(
    () => true,
    (error: Error) => {
      if (REDIRECTION.test(error.message)) return false;
      throw error;
    },
  );
const REDIRECTION = /^(MOVED|ASK|TRYAGAIN)\b/;

/** Replies of a server that takes no writes: a replica, or a primary that refuses them. */
const NO_WRITES = /^(?:ERR Error running script.*? -?)?(READONLY|NOREPLICAS|MISCONF)\b/;

/** Whether a reply means that the connection is to be ended: its address may lead to the primary by now. */
export const leavesServer = ({ message }: Error) => NO_WRITES.test(message);

/** Whether the user of Redis may not send a command. */
export const isDenied = ({ message }: Error) => DENIED.test(message);
