/**
 * A lock in ZooKeeper: contenders queue as ephemeral sequential nodes below the resource's queue node.
 *
 *   enqueue ──head──▶ held: kit/renewing-lease.ts
 *     │ └──not head──▶ watch the predecessor ──gone──▶ read again ──head──▶ check ──▶ held
 *     │                    └──waitMs elapsed, aborted: own node removed
 *     └──no reply: own node found by the id in its name, and removed
 *
 * The lease is the session: its timeout is LOCK_TTL_MS, and `ttlMs` is ignored. A renewal is a write without effect, because
 * a server without a leader still answers reads. The lease counts for two thirds of the timeout only: a server reports its
 * sessions to the leader every half tick, and may die in between.
 *
 * The fencing token is the id of the transaction that created the node (czxid: 32 bits of epoch, 32 of counter). A
 * JavaScript number holds it exactly for the first two million leader elections.
 */
import { randomUUID } from 'node:crypto';
import { type LeaseAcquisition, RenewingLease } from './kit/renewing-lease.ts';
import { type Waiter, waitingLock } from './kit/waiting-lock.ts';
import { within } from './kit/within.ts';
import * as queue from './kit/zookeeper-queue.ts';
import { ZookeeperError, type ZookeeperSession, ZookeeperSessions } from './kit/zookeeper-session.ts';
import {
  type AcquireResult,
  LEASE_CAPABILITIES,
  type Lock,
  type LockDescription,
  LockSetupError,
} from './lock.ts';
import type { CheckedOptions } from './options.ts';

export const description: LockDescription = {
  name: 'zookeeper',
  summary: 'Ephemeral sequential nodes in ZooKeeper: a fair queue; each waiter watches its predecessor.',
  flaw: 'One session per process: its end takes all leases of the process.',
  needs: 'ZOOKEEPER_URL',
  capabilities: [
    ...LEASE_CAPABILITIES,
    'fencing-tokens',
    'waits-by-notification',
    'fair',
    'survives-failover',
  ],
};

const OPEN_MS = 5_000;
const LEASE_SHARE = 2 / 3;
const SWEEP_MS = 5_000;

interface ZookeeperContext {
  readonly zookeeperUrl: string | null;
  readonly lockTtlMs: number;
}

/** @throws LockSetupError if ZOOKEEPER_URL is not set, or no server replies */
export async function create({ zookeeperUrl, lockTtlMs }: ZookeeperContext): Promise<Lock> {
  if (zookeeperUrl === null)
    throw new LockSetupError('LOCK=zookeeper needs a server: set ZOOKEEPER_URL=host:port,…');
  const sessions = await ZookeeperSessions.open(zookeeperUrl, lockTtlMs, OPEN_MS);
  const nodes = new queue.QueueNodes();
  const sweeping = setInterval(() => void nodes.sweep(sessions.current), SWEEP_MS).unref();

  async function acquire(resource: string, _: CheckedOptions, waiter: Waiter): Promise<AcquireResult> {
    const leave = nodes.use(queue.nodeOf(resource));
    let lease: RenewingLease | null = null;
    try {
      const zk = await within(sessions.live(), undefined, waiter.signal);
      lease = zk && (await waitForHead(zk, resource, waiter, leave));
      return lease === null ? waiter.notAcquired() : { kind: 'held', lease };
    } catch (error) {
      if (!(error instanceof ZookeeperError)) throw error;
      return { kind: 'unavailable', reason: `zookeeper-${error.code}` };
    } finally {
      if (lease === null) leave();
    }
  }

  return waitingLock({
    name: description.name,
    queue: null,
    acquire,
    async close() {
      clearInterval(sweeping);
      if (!sessions.current.ended.aborted) await nodes.sweep(sessions.current, 0);
      await sessions.close();
    },
  });
}

/** Enqueues a node and waits until it is the head. @returns null if the wait ended first */
async function waitForHead(
  zk: ZookeeperSession,
  resource: string,
  waiter: Waiter,
  onEnd: () => void,
): Promise<RenewingLease | null> {
  const parent = queue.nodeOf(resource);
  const id = randomUUID();
  const ttlMs = zk.timeoutMs * LEASE_SHARE;
  let requestedAtMs = performance.now();
  let lease: RenewingLease | null = null;
  const predecessor = new queue.PredecessorWatch(zk, waiter.signal);
  const enqueueing = queue.enqueue(zk, parent, id);
  try {
    const path = await within(enqueueing, undefined, waiter.signal);
    if (path === null) return null;
    for (;;) {
      const [names, fencingToken] = await Promise.all([queue.membersOf(zk, parent), zk.creation(path)]);
      const place = names.findIndex((name) => path.endsWith(name));
      if (waiter.signal.aborted) return null;
      if (place === 0) {
        if (performance.now() - requestedAtMs > ttlMs / 4) {
          requestedAtMs = performance.now();
          await zk.check(path);
        }
        lease = leaseOf(zk, path, { resource, token: id, fencingToken, ttlMs, requestedAtMs }, onEnd);
        return lease;
      }
      const leftMs = waiter.untilMs - performance.now();
      if (leftMs <= 0) return null;
      // The periodic read detects a silent connection.
      await predecessor.wait(`${parent}/${names[place - 1]}`, Math.min(leftMs, ttlMs / 2));
    }
  } finally {
    if (lease === null) void queue.withdraw(zk, parent, id, enqueueing);
  }
}

function leaseOf(
  zk: ZookeeperSession,
  path: string,
  acquisition: LeaseAcquisition,
  onEnd: () => void,
): RenewingLease {
  let isReleased = false;
  const release = () => {
    isReleased = true;
    return queue.removeOwn(zk, path);
  };
  const lease = new RenewingLease({ renew: () => queue.isQueued(zk, path), release }, acquisition);
  const lose = () => lease.lose('the session ended');
  zk.ended.addEventListener('abort', lose, { once: true });
  lease.onEnd = () => {
    zk.ended.removeEventListener('abort', lose);
    if (!isReleased) void queue.remove(zk, path); // the session may live on
    onEnd();
  };
  return lease;
}
