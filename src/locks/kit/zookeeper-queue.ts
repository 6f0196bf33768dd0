/**
 * A queue of ephemeral sequential nodes below one queue node per resource.
 *
 *   enqueue ──▶ queued ──remove──▶ gone
 *     └──no reply──▶ withdraw: finds the node by the id in its name and removes it
 *
 * Queue nodes that this process has not used for a while are removed; ZooKeeper rejects the removal while they have children. (The
 * server would do this for container nodes, but the client library cannot create them.)
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { RequestError } from '../clients.ts';
import { within } from './within.ts';
import { ZookeeperError, type ZookeeperSession } from './zookeeper-session.ts';

const ROOT = ['/stampede', '/stampede/locks'];
const IDLE_MS = 10_000;
const RETRY_MS = 50;
const MAX_ENQUEUE_ATTEMPTS = 10;

const codeOf = (error: unknown) => {
  if (error instanceof ZookeeperError) return error.code;
  throw error;
};

/** The queue node of a resource, encoded because a resource may contain any character. */
export const nodeOf = (resource: string): string => `${ROOT[1]}/r-${encodeURIComponent(resource)}`;

/** The names of the queued nodes, head first. ZooKeeper appends a sequence number of ten digits. */
export async function membersOf(zk: ZookeeperSession, queue: string): Promise<readonly string[]> {
  const sequence = (name: string) => Number(name.slice(-10));
  return [...(await zk.children(queue))].sort((a, b) => sequence(a) - sequence(b));
}

/** Appends a node. @returns its path */
export async function enqueue(zk: ZookeeperSession, queue: string, id: string): Promise<string> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await zk.createEphemeralSequential(`${queue}/${id}-`);
    } catch (error) {
      // The queue node was never created, or another process just removed it.
      if (codeOf(error) !== 'no-node' || attempt === MAX_ENQUEUE_ATTEMPTS) throw error;
      for (const path of [...ROOT, queue]) await ensureNode(zk, path);
    }
  }
}

/** Creates a node unless it exists. Afterwards this server has applied all earlier writes. */
async function ensureNode(zk: ZookeeperSession, path: string): Promise<void> {
  await zk.createPersistent(path).catch((error: unknown) => {
    // `no-node`: the parent was just removed; the next attempt creates both.
    if (!['node-exists', 'no-node'].includes(codeOf(error))) throw error;
  });
}

/**
 * Removes a node, and retries for as long as the session lives: otherwise the node would block the queue until the process
 * ends.
 * @returns whether it existed
 */
export async function remove(zk: ZookeeperSession, path: string): Promise<boolean> {
  return retryUntilReply(zk, async (attempt) => {
    try {
      await zk.remove(path);
      return true;
    } catch (error) {
      if (codeOf(error) === 'no-node') return attempt > 1; // an earlier attempt removed it, and its reply was lost
      throw error;
    }
  });
}

/** `remove` for a holder. @throws RequestError if the session ends before ZooKeeper replies */
export async function removeOwn(zk: ZookeeperSession, path: string): Promise<boolean> {
  const existed = await remove(zk, path);
  if (!existed && zk.ended.aborted) throw new RequestError({ kind: 'unknown', reason: 'zookeeper-session' });
  return existed;
}

/**
 * Whether a node is still queued. One retry without a reply: the next connection is available at once, and the next renewal
 * may be too late.
 * @throws if ZooKeeper does not reply
 */
export async function isQueued(zk: ZookeeperSession, path: string): Promise<boolean> {
  for (let attempt = 1; ; attempt++) {
    try {
      await zk.check(path);
      return true;
    } catch (error) {
      if (['no-node', 'ended'].includes(codeOf(error))) return false;
      if (attempt === 2) throw error;
    }
  }
}

/** Leaves the queue, even if the outcome of `enqueue` is unknown. */
export async function withdraw(
  zk: ZookeeperSession,
  queue: string,
  id: string,
  enqueueing: Promise<string>,
): Promise<void> {
  const path = await enqueueing.catch(() => null);
  if (path !== null) await remove(zk, path);
  else await retryUntilReply(zk, () => removeById(zk, queue, id));
}

/** Removes the node that an `enqueue` without a reply may have created. */
async function removeById(zk: ZookeeperSession, queue: string, id: string): Promise<boolean> {
  await ensureNode(zk, queue); // a write, so that a lagging server catches up before the read
  const names = await zk.children(queue).catch((error: unknown) => {
    if (codeOf(error) === 'no-node') return [];
    throw error;
  });
  for (const name of names) if (name.startsWith(id)) await remove(zk, `${queue}/${name}`);
  return true;
}

/** Retries until ZooKeeper replies. After two session timeouts it ends the session, and with it the session's nodes. */
async function retryUntilReply(
  zk: ZookeeperSession,
  request: (attempt: number) => Promise<boolean>,
): Promise<boolean> {
  const untilMs = performance.now() + 2 * zk.timeoutMs;
  for (let attempt = 1; !zk.ended.aborted; attempt++) {
    try {
      return await request(attempt);
    } catch (error) {
      if (codeOf(error) === 'ended') return false;
      if (performance.now() > untilMs) await zk.close();
      else await sleep(RETRY_MS);
    }
  }
  return false;
}

/** Waits until the predecessor's node is gone. */
export class PredecessorWatch {
  readonly #zk: ZookeeperSession;
  readonly #signal: AbortSignal;
  #wake = () => {};
  // One function for all watches: the library registers a function once per path, and drops it only when it is called.
  readonly #onChange = () => this.#wake();

  constructor(zk: ZookeeperSession, signal: AbortSignal) {
    this.#zk = zk;
    this.#signal = signal;
  }

  /** Resolves when the node is gone, after `ms`, when the signal fires, and when the session ends. */
  async wait(path: string, ms: number): Promise<void> {
    const gone = new Promise<void>((resolve) => {
      this.#wake = resolve;
      this.#zk.creation(path, this.#onChange).catch(resolve); // gone already, or the caller's next read fails as well
    });
    await within(gone, ms, this.#signal, this.#zk.ended);
  }
}

/** Counts this process's uses of queue nodes, to remove idle ones. */
export class QueueNodes {
  readonly #nodes = new Map<string, { users: number; idleSinceMs: number }>();

  /** @returns a function that ends the use */
  use(queue: string): () => void {
    const node = this.#nodes.get(queue) ?? { users: 0, idleSinceMs: 0 };
    this.#nodes.set(queue, node);
    node.users++;
    return () => {
      node.users--;
      node.idleSinceMs = performance.now();
    };
  }

  /** Removes queue nodes that were idle for `idleMs`, if ZooKeeper lets it. One that it keeps is idle from now on. */
  async sweep(zk: ZookeeperSession, idleMs = IDLE_MS): Promise<void> {
    const nowMs = performance.now();
    const sweepOne = async (queue: string) => {
      const node = this.#nodes.get(queue)!;
      if (node.users > 0 || nowMs - node.idleSinceMs < idleMs) return;
      node.idleSinceMs = nowMs;
      const failure = await zk.remove(queue).then(() => null, codeOf);
      const isGone = failure === null || failure === 'no-node';
      if (isGone && node.users === 0 && node.idleSinceMs === nowMs) this.#nodes.delete(queue);
    };
    await Promise.all([...this.#nodes.keys()].map(sweepOne));
  }
}
