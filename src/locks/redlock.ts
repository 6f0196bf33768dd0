/**
 * A lock on a majority of several independent Redis servers.
 *
 *   SET on all at once ──majority granted in time──▶ held ──majority renewed──▶ held
 *            │                                        └──majority denied──▶ lost
 *            └──▶ released on all: retry after a random pause if contended,
 *                                  unavailable if too few servers replied
 *
 * Each server has NODE_MS to reply, and a decision does not wait for the rest. A release that a server did not confirm is
 * repeated after a reconnection, for as long as the key can live. The algorithm's validity (TTL − elapsed − drift) is the
 * lease's deadline, which kit/renewing-lease.ts counts from before each request.
 */
import { Redis } from 'ioredis';
import { limits } from '../config/limits.ts';
import { isDenied } from '../store/failures/redis.ts';
import { missingRules, OF_A_LOCK, PROBE_KEY } from '../store/redis/permissions.ts';
import { type Acquisition, polledLock } from './kit/polled-lock.ts';
import { requestQuorum } from './kit/quorum.ts';
import { defineTokenScripts, lockKey } from './kit/redis.ts';
import { LEASE_CAPABILITIES, type Lock, type LockDescription, LockSetupError } from './lock.ts';

export const description: LockDescription = {
  name: 'redlock',
  summary: 'A majority of independent Redis servers; it tolerates the failure of a minority.',
  flaw: 'No fencing token: a holder that pauses past its lease, a clock that jumps, or a server that restarts empty within a TTL admits a second writer.',
  needs: 'REDLOCK_URLS',
  capabilities: [...LEASE_CAPABILITIES, 'survives-failover'],
};

/** Longest reply of one server: milliseconds, and a share of the lease. The smaller one applies. */
const NODE_MS = 200;
const NODE_SHARE = 0.1;

interface Context {
  readonly redlockUrls: readonly string[];
  readonly onError: (doing: string, error: unknown, details?: object) => void;
}

interface Node {
  readonly host: string;
  readonly redis: Redis;
  renew(resource: string, token: string, ttlMs: number): Promise<boolean>;
  release(resource: string, token: string, ttlMs: number): Promise<boolean>;
}

export async function create({ redlockUrls, onError }: Context): Promise<Lock> {
  const nodes = await openNodes(redlockUrls, onError);
  const quorum = quorumOf(nodes);
  const request = (ttlMs: number, send: (node: Node) => Promise<boolean>) =>
    requestQuorum(nodes, quorum, Math.min(NODE_MS, ttlMs * NODE_SHARE), (node) =>
      send(node).catch((error: Error) => {
        if (isDenied(error)) onError('redlock-permission', error, { host: node.host });
        throw error;
      }),
    );

  async function release({ resource, token, options: { ttlMs } }: Acquisition): Promise<boolean> {
    const { granted } = await request(ttlMs, (node) => node.release(resource, token, ttlMs));
    return granted >= quorum;
  }

  return polledLock({
    name: description.name,
    queuesAtServer: false,
    async tryAcquire(acquisition) {
      const { resource, token, options } = acquisition;
      const { ttlMs } = options;
      const requestedAtMs = performance.now();
      const { granted, denied } = await request(ttlMs, ({ redis }) =>
        redis.set(lockKey(resource), token, 'PX', ttlMs, 'NX').then((reply) => reply === 'OK'),
      );
      if (granted >= quorum) return { kind: 'held', fencingToken: null };
      await release(acquisition);
      if (granted + denied < quorum) return { kind: 'unavailable', reason: 'redlock-no-quorum' };
      // A split vote ends when one contender retries while the others pause: random, and longer than an attempt.
      return { kind: 'retry', extraMs: Math.random() * 4 * (performance.now() - requestedAtMs) };
    },
    async renew({ resource, token, options: { ttlMs } }) {
      const { granted, denied } = await request(ttlMs, (node) => node.renew(resource, token, ttlMs));
      if (granted < quorum && denied <= nodes.length - quorum) throw new Error('too few servers replied');
      return granted >= quorum;
    },
    release,
    close: () => closeNodes(nodes),
  });
}

const quorumOf = ({ length }: readonly Node[]): number => Math.floor(length / 2) + 1;

function closeNodes(nodes: readonly Node[]): void {
  for (const { redis } of nodes) redis.disconnect();
}

/** Connects to a majority at least. @throws LockSetupError */
async function openNodes(
  redlockUrls: readonly string[],
  onError: Context['onError'],
): Promise<readonly Node[]> {
  const distinct = new Set(redlockUrls.map((url) => new URL(url).host)).size;
  if (distinct < 3 || distinct < redlockUrls.length) {
    throw new LockSetupError('REDLOCK_URLS must name at least three different Redis servers');
  }
  const nodes = redlockUrls.map((url) => openNode(url, onError));
  const quorum = quorumOf(nodes);
  const connected = await Promise.allSettled(nodes.map(({ redis }) => redis.connect()));
  if (connected.filter(({ status }) => status === 'fulfilled').length < quorum) {
    closeNodes(nodes);
    throw new LockSetupError(
      `fewer than ${quorum} of the ${nodes.length} servers of REDLOCK_URLS are reachable`,
    );
  }
  const probes = nodes.map(({ redis }) => ({ redis, key: PROBE_KEY }));
  const rules = await missingRules(probes, OF_A_LOCK);
  if (rules.length === 0) return nodes;
  closeNodes(nodes);
  throw new LockSetupError(`a server denies commands: run ACL SETUSER with its user and ${rules.join(' ')}`);
}

function openNode(url: string, onError: Context['onError']): Node {
  const redis = new Redis(url, {
    lazyConnect: true,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    commandTimeout: limits.redisCommandMs,
    connectTimeout: limits.redisCommandMs,
    socketTimeout: 2 * limits.redisCommandMs, // replaces a silent connection
    retryStrategy: (times) => Math.min(25 * 2 ** Math.min(times, 5), 250), // a lease may depend on it
  });
  const { host } = new URL(url);
  redis.on('error', (error) => onError('redlock-connection', error, { host }));
  const scripts = defineTokenScripts(redis);
  /** Releases that the server has not confirmed, by token. Their keys expire at `untilMs`. */
  const unconfirmed = new Map<string, { resource: string; untilMs: number }>();
  async function release(resource: string, token: string, ttlMs: number): Promise<boolean> {
    for (const [old, { untilMs }] of unconfirmed) if (untilMs < performance.now()) unconfirmed.delete(old);
    unconfirmed.set(token, { resource, untilMs: performance.now() + ttlMs });
    const isHeld = await scripts.release(resource, token);
    unconfirmed.delete(token);
    return isHeld;
  }
  redis.on('ready', () => {
    for (const [token, { resource, untilMs }] of [...unconfirmed])
      release(resource, token, untilMs - performance.now()).catch(() => {});
  });
  return { host, redis, renew: scripts.renew, release };
}
