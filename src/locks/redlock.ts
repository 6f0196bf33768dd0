/**
 * A lock on more than half of several independent Redis servers.
 *
 *   SET on all at once ──more than half said yes, in time──▶ held ──more than half prolonged it──▶ held
 *            │                                                └──more than half said no──▶ lost
 *            └──▶ released on all: others hold it, or nobody got enough: again after a random while
 *                                  too few servers answered: unavailable
 *
 * Each server has NODE_MS to answer, and what is decided does not wait for the rest. A release that a server did
 * not confirm is sent again when its connection is back, for as long as the key could live. The validity
 * (TTL − elapsed − drift) is the lease's deadline: see renewing-lease.ts, which counts it from before each request.
 */
import { Redis } from 'ioredis';
import { limits } from '../config/limits.ts';
import { type Call, defineScript } from '../store/redis/script.ts';
import { lockKey } from './kit/keys.ts';
import { type Claim, polledLock } from './kit/polled-lock.ts';
import { vote } from './kit/quorum.ts';
import type { Lock, LockDescription } from './lock.ts';

export const description: LockDescription = {
  name: 'redlock',
  summary:
    'A majority of independent Redis servers; those that are down are tolerated while more than half are up.',
  flaw: 'No fencing token: a holder that is paused past its lease, a clock that jumps, or a server that restarts empty within a TTL lets a second one write.',
  needs: 'REDLOCK_URLS',
  capabilities: {
    expires: true,
    checksOwner: true,
    settlesLostAnswers: true,
    renews: true,
    signalsLoss: true,
    reentrant: false,
    fair: false,
    fenced: false,
    waitsByEvent: false,
    survivesFailover: true,
  },
};

/** How long one server may take, in milliseconds: at most so long, and a small share of the lease. */
const NODE_MS = 200;
const NODE_SHARE = 0.1;

interface Context {
  readonly redlockUrls: readonly string[];
  readonly onError: (doing: string, error: unknown, details?: object) => void;
}

interface Node {
  readonly redis: Redis;
  readonly renew: Call<number>;
  release(key: string, token: string, ttlMs: number): Promise<boolean>;
}

export async function create({ redlockUrls, onError }: Context): Promise<Lock> {
  const distinct = new Set(redlockUrls.map((url) => new URL(url).host)).size;
  if (distinct < 3 || distinct < redlockUrls.length) {
    throw new Error('REDLOCK_URLS must name at least three Redis servers, and none twice');
  }
  const nodes = redlockUrls.map((url) => openNode(url, onError));
  const quorum = Math.floor(nodes.length / 2) + 1;
  const close = () => {
    for (const { redis } of nodes) redis.disconnect();
  };
  const connected = await Promise.allSettled(nodes.map(({ redis }) => redis.connect()));
  if (connected.filter(({ status }) => status === 'fulfilled').length < quorum) {
    close();
    throw new Error(`fewer than ${quorum} of the ${nodes.length} servers of REDLOCK_URLS can be reached`);
  }
  const nodeMs = (ttlMs: number) => Math.min(NODE_MS, ttlMs * NODE_SHARE);

  async function release({ resource, token, options: { ttlMs } }: Claim): Promise<boolean> {
    const votes = await vote(nodes, quorum, nodeMs(ttlMs), (node) =>
      node.release(lockKey(resource), token, ttlMs),
    );
    return votes.yes >= quorum;
  }

  return polledLock({
    name: description.name,
    keepsPlace: false,
    async ask(claim) {
      const { resource, token, options } = claim;
      const { ttlMs } = options;
      const askedMs = performance.now();
      const { yes, no } = await vote(nodes, quorum, nodeMs(ttlMs), async ({ redis }) => {
        return (await redis.set(lockKey(resource), token, 'PX', ttlMs, 'NX')) === 'OK';
      });
      if (yes >= quorum) return { kind: 'held', fencingToken: null };
      await release(claim);
      if (yes + no < quorum) return { kind: 'unavailable', reason: 'redlock-no-quorum' };
      // An even split ends when one asks again while the others still pause: random, and longer than a question.
      return { kind: 'wait', extraMs: Math.random() * 4 * (performance.now() - askedMs) };
    },
    async renew({ resource, token, options: { ttlMs } }) {
      const { yes, no } = await vote(nodes, quorum, nodeMs(ttlMs), async ({ renew }) => {
        return (await renew(lockKey(resource), token, ttlMs)) === 1;
      });
      if (yes < quorum && no <= nodes.length - quorum) throw new Error('too few servers answered');
      return yes >= quorum;
    },
    release,
    close,
  });
}

function openNode(url: string, onError: Context['onError']): Node {
  const redis = new Redis(url, {
    lazyConnect: true,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    commandTimeout: limits.redisCommandMs,
    connectTimeout: limits.redisCommandMs,
    socketTimeout: 2 * limits.redisCommandMs, // a connection that went silent is made anew
    retryStrategy: (times) => Math.min(25 * 2 ** Math.min(times, 5), 250), // a lease may depend on it
  });
  const { host } = new URL(url);
  redis.on('error', (error) => onError('redlock-connection', error, { host }));
  const unlock = defineScript<number>(redis, 'lock/release', 1);
  /** Releases that the server has not confirmed: their keys, and until when those can live. */
  const owed = new Map<string, { key: string; untilMs: number }>();
  async function release(key: string, token: string, ttlMs: number): Promise<boolean> {
    for (const [old, { untilMs }] of owed) if (untilMs < performance.now()) owed.delete(old);
    owed.set(token, { key, untilMs: performance.now() + ttlMs });
    const held = await unlock(key, token);
    owed.delete(token);
    return held === 1;
  }
  redis.on('ready', () => {
    for (const [token, { key, untilMs }] of [...owed])
      release(key, token, untilMs - performance.now()).catch(() => {});
  });
  return { redis, renew: defineScript<number>(redis, 'lock/renew', 1), release };
}
