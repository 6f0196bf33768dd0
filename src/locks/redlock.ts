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
import { type RedlockServer, RequestError } from './clients.ts';
import { type Acquisition, polledLock } from './kit/polled-lock.ts';
import { requestQuorum } from './kit/quorum.ts';
import { type ByToken, defineTokenScripts, lockKey } from './kit/redis.ts';
import { LEASE_CAPABILITIES, type Lock, type LockDescription } from './lock.ts';

export const description: LockDescription = {
  name: 'redlock',
  summary: 'A majority of independent Redis servers; it tolerates the failure of a minority.',
  flaw: 'No fencing token: a holder that pauses past its lease, a clock that jumps, or a server that restarts empty within a TTL admits a second writer.',
  needs: 'REDLOCK_URLS',
  capabilities: [...LEASE_CAPABILITIES, 'survives-failover'],
};

const NO_QUORUM = 'redlock-no-quorum';
/** Longest reply of one server: milliseconds, and a share of the lease. The smaller one applies. */
const NODE_MS = 200;
const NODE_SHARE = 0.1;
/** Shortest TTL, in milliseconds: its share leaves a server 10 ms to reply. */
const MIN_TTL_MS = 100;

interface Context {
  /** Opens clients of at least three independent servers, a majority of which is reachable. */
  openRedlock(): Promise<readonly RedlockServer[]>;
}

type Node = Pick<RedlockServer, 'send'> & ReturnType<typeof defineTokenScripts>;

/** @throws what opening the servers throws */
export async function create({ openRedlock }: Context): Promise<Lock> {
  const servers = await openRedlock();
  const nodes = servers.map(nodeOn);
  const quorum = Math.floor(nodes.length / 2) + 1;
  const request = (ttlMs: number, send: (node: Node) => Promise<boolean>) =>
    requestQuorum(nodes, quorum, Math.min(NODE_MS, ttlMs * NODE_SHARE), send);

  /** @returns whether a majority granted it @throws if too few servers replied to know */
  function majority({ granted, denied }: Awaited<ReturnType<typeof request>>): boolean {
    if (granted < quorum && denied <= nodes.length - quorum)
      throw new RequestError({ kind: 'unknown', reason: NO_QUORUM });
    return granted >= quorum;
  }
  const release = (acquisition: Acquisition) =>
    request(acquisition.ttlMs, (node) => node.release(acquisition));

  return polledLock({
    name: description.name,
    minTtlMs: MIN_TTL_MS,
    async tryAcquire(acquisition) {
      const { resource, token, ttlMs } = acquisition;
      const requestedAtMs = performance.now();
      const { granted, denied } = await request(ttlMs, ({ send }) =>
        send('SET', lockKey(resource), token, 'PX', ttlMs, 'NX').then((reply) => reply === 'OK'),
      );
      if (granted >= quorum) return { kind: 'held', fencingToken: null };
      await release(acquisition);
      if (granted + denied < quorum) return { kind: 'unavailable', reason: NO_QUORUM };
      // A split vote ends when one contender retries while the others pause: random, and longer than an attempt.
      return { kind: 'retry', extraMs: Math.random() * 4 * (performance.now() - requestedAtMs) };
    },
    renew: async (acquisition) =>
      majority(await request(acquisition.ttlMs, (node) => node.renew(acquisition))),
    release: async (acquisition) => majority(await release(acquisition)),
    close() {
      for (const server of servers) void server.close();
    },
  });
}

function nodeOn(server: RedlockServer): Node {
  const scripts = defineTokenScripts(server);
  /** Releases that the server has not confirmed, by token. Their keys expire at `untilMs`. */
  const unconfirmed = new Map<string, ByToken & { readonly untilMs: number }>();
  async function release(given: ByToken): Promise<boolean> {
    const nowMs = performance.now();
    for (const [old, { untilMs }] of unconfirmed) if (untilMs < nowMs) unconfirmed.delete(old);
    unconfirmed.set(given.token, { ...given, untilMs: nowMs + given.ttlMs });
    const isHeld = await scripts.release(given);
    unconfirmed.delete(given.token);
    return isHeld;
  }
  server.onReady(() => {
    for (const given of [...unconfirmed.values()])
      release({ ...given, ttlMs: given.untilMs - performance.now() }).catch(() => {});
  });
  return { send: server.send, renew: scripts.renew, release };
}
