/**
 * A lock in ZooKeeper: contenders stand in line as ephemeral sequential nodes below the resource's own node.
 *
 *   create ──first──▶ held: see renewing-lease.ts
 *     │ └──not first──▶ watch the one before ──gone──▶ look again ──first──▶ check ──▶ held
 *     │                    └──waitMs over, aborted: own node removed
 *     └──no answer: found again by the id in its name, and removed
 *
 * The lease is the session: `ttlMs` is not asked for, LOCK_TTL_MS is its timeout. A lease is renewed by a write without
 * effect, since a server that lost its leader still answers reads; and it is believed for two thirds of the timeout:
 * a server tells its leader of a session only every half tick, and may die before it does.
 *
 * The fencing token is the number of the write that made the node (czxid: 32 bits of epoch, 32 of counter). It is exact
 * as a JavaScript number for the first two million elections of a leader.
 */
import { randomUUID } from 'node:crypto';
import * as line from '../store/zookeeper/queue.ts';
import { ZookeeperError, type ZookeeperSession, ZookeeperSessions } from '../store/zookeeper/session.ts';
import { type LeaseClaim, RenewingLease } from './kit/renewing-lease.ts';
import { unlessAborted, type Waiter, waitingLock } from './kit/waiting-lock.ts';
import type { AcquireOptions, AcquireResult, Lock, LockDescription } from './lock.ts';

export const description: LockDescription = {
  name: 'zookeeper',
  summary:
    'Ephemeral sequential nodes in ZooKeeper: a fair line, each watches the one before; one session a process.',
  flaw: 'A session that ends takes all leases of its process along.',
  needs: 'ZOOKEEPER_URL',
  capabilities: {
    expires: true,
    checksOwner: true,
    settlesLostAnswers: true,
    renews: true,
    signalsLoss: true,
    reentrant: false,
    fair: true,
    fenced: true,
    waitsByEvent: true,
    survivesFailover: true,
  },
};

const OPEN_MS = 5_000;
const SAFE_SHARE = 2 / 3;
const SWEEP_MS = 5_000;

interface ZookeeperContext {
  readonly zookeeperUrl: string | null;
  readonly lockTtlMs: number;
}

/** @throws when ZOOKEEPER_URL is not set, or no server answers */
export async function create({ zookeeperUrl, lockTtlMs }: ZookeeperContext): Promise<Lock> {
  if (zookeeperUrl === null)
    throw new Error('the lock zookeeper needs a server: set ZOOKEEPER_URL=host:port,…');
  const sessions = await ZookeeperSessions.open(zookeeperUrl, lockTtlMs, OPEN_MS);
  const folders = new line.Folders();
  const sweeping = setInterval(() => void folders.sweep(sessions.current), SWEEP_MS).unref();

  async function ask(resource: string, _: AcquireOptions, waiter: Waiter): Promise<AcquireResult> {
    const leave = folders.use(line.folderOf(resource));
    let lease: RenewingLease | null = null;
    try {
      const zk = await unlessAborted(sessions.live(), waiter.signal);
      if (zk === null) return waiter.ended();
      lease = await stand(zk, resource, waiter, leave);
      if (lease === null) return waiter.ended();
      return { kind: 'held', lease };
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
    ask,
    async close() {
      clearInterval(sweeping);
      if (!sessions.current.ended.aborted) await folders.sweep(sessions.current, 0);
      await sessions.close();
    },
  });
}

/** Stands in line until it is our turn. @returns null when the waiter was done with waiting before */
async function stand(
  zk: ZookeeperSession,
  resource: string,
  waiter: Waiter,
  leave: () => void,
): Promise<RenewingLease | null> {
  const folder = line.folderOf(resource);
  const id = randomUUID();
  const ttlMs = zk.timeoutMs * SAFE_SHARE;
  let askedMs = performance.now();
  let lease: RenewingLease | null = null;
  const bell = new line.Bell(zk, waiter.signal);
  const entering = line.enter(zk, folder, id);
  try {
    const path = await unlessAborted(entering, waiter.signal);
    if (path === null) return null;
    for (;;) {
      const [names, fencingToken] = await Promise.all([line.standing(zk, folder), zk.creation(path)]);
      const place = names.findIndex((name) => path.endsWith(name));
      if (waiter.signal.aborted) return null;
      if (place === 0) {
        if (performance.now() - askedMs > ttlMs / 4) {
          askedMs = performance.now();
          await zk.check(path);
        }
        const claim = { resource, token: id, fencingToken, ttlMs, askedMs };
        lease = leaseOf(zk, path, claim, leave);
        return lease;
      }
      const leftMs = waiter.untilMs - performance.now();
      if (leftMs <= 0) return null;
      // A look now and then, too: it finds out that the connection went silent.
      await bell.wait(`${folder}/${names[place - 1]}`, Math.min(leftMs, ttlMs / 2));
    }
  } finally {
    if (lease === null) void line.withdraw(zk, folder, id, entering);
  }
}

/** @param leave is called when the lease is over */
function leaseOf(zk: ZookeeperSession, path: string, claim: LeaseClaim, leave: () => void): RenewingLease {
  let given = false;
  const release = () => {
    given = true;
    return line.giveSoon(zk, path);
  };
  const lease = new RenewingLease({ renew: () => line.stands(zk, path), release }, claim);
  const lose = () => lease.lose('the session is over');
  zk.ended.addEventListener('abort', lose, { once: true });
  lease.onEnd = () => {
    zk.ended.removeEventListener('abort', lose);
    if (!given) void line.give(zk, path); // the session may live on
    leave();
  };
  return lease;
}
