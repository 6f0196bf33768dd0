/**
 * A line of ephemeral sequential nodes below one folder node.
 *
 *   enter ──▶ in line ──give──▶ gone
 *     └──no answer──▶ withdraw: found by the id in the node's name, and removed
 *
 * Folders that nobody of this process used for a while are removed; ZooKeeper refuses that while another process
 * stands in line there. (Container nodes would do it at the server: the client library cannot make them.)
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { ZookeeperError, type ZookeeperSession } from './session.ts';

const ROOT = ['/stampede', '/stampede/locks'];
const IDLE_MS = 10_000;
const PAUSE_MS = 50;
const GIVE_MS = 1_500;
const ENTER_TRIES = 10;

const codeOf = (error: unknown) => {
  if (error instanceof ZookeeperError) return error.code;
  throw error;
};

/** The folder of a resource: any text makes one name. */
export const folderOf = (resource: string): string => `${ROOT[1]}/r-${encodeURIComponent(resource)}`;

/** Those who stand in line, first first: ZooKeeper appends ten digits. */
export async function standing(zk: ZookeeperSession, folder: string): Promise<readonly string[]> {
  const place = (name: string) => Number(name.slice(-10));
  return [...(await zk.children(folder))].sort((a, b) => place(a) - place(b));
}

/** Joins the line. @returns the node's path */
export async function enter(zk: ZookeeperSession, folder: string, id: string): Promise<string> {
  for (let tries = 1; ; tries++) {
    try {
      return await zk.createEphemeralSequential(`${folder}/${id}-`);
    } catch (error) {
      // Somebody removes an idle folder in this moment, or it was never made.
      if (codeOf(error) !== 'no-node' || tries === ENTER_TRIES) throw error;
      for (const path of [...ROOT, folder]) await make(zk, path);
    }
  }
}

/** @returns once the node is there, and this server knows all that was written before */
async function make(zk: ZookeeperSession, path: string): Promise<void> {
  await zk.createPersistent(path).catch((error: unknown) => {
    // `no-node`: its parent was removed in this moment; the next try makes both.
    if (!['node-exists', 'no-node'].includes(codeOf(error))) throw error;
  });
}

/**
 * Removes a node, and does not give up while the session lives: the node would stand in line as long as the process.
 * @returns whether it was there
 */
export async function give(zk: ZookeeperSession, path: string): Promise<boolean> {
  return settled(zk, async (tries) => {
    try {
      await zk.remove(path);
      return true;
    } catch (error) {
      if (codeOf(error) === 'no-node') return tries > 1; // else the first try's answer was lost
      throw error;
    }
  });
}

/**
 * Whether a node still stands in line. Asks once more when there was no answer: the next connection is there at once,
 * the next renewal may come too late.
 * @throws when ZooKeeper does not tell
 */
export async function stands(zk: ZookeeperSession, path: string): Promise<boolean> {
  for (let tries = 1; ; tries++) {
    try {
      await zk.check(path);
      return true;
    } catch (error) {
      if (['no-node', 'ended'].includes(codeOf(error))) return false;
      if (tries === 2) throw error;
    }
  }
}

/** `give`, but answers false after a while, and goes on in the background. */
export async function giveSoon(zk: ZookeeperSession, path: string): Promise<boolean> {
  const answered = new AbortController();
  const late = sleep(GIVE_MS, false, { signal: answered.signal }).catch(() => false);
  const gone = await Promise.race([give(zk, path), late]);
  answered.abort();
  return gone;
}

/** Leaves the line, also when nobody knows whether it was joined. */
export async function withdraw(
  zk: ZookeeperSession,
  folder: string,
  id: string,
  entering: Promise<string>,
): Promise<void> {
  const path = await entering.catch(() => null);
  if (path !== null) await give(zk, path);
  else await settled(zk, () => search(zk, folder, id));
}

/** Removes what an `enter` without an answer made, if it made anything. */
async function search(zk: ZookeeperSession, folder: string, id: string): Promise<boolean> {
  await make(zk, folder); // a write, so that a server that lags behind catches up before it is read from
  const names = await zk.children(folder).catch((error: unknown) => {
    if (codeOf(error) === 'no-node') return [];
    throw error;
  });
  for (const name of names) if (name.startsWith(id)) await give(zk, `${folder}/${name}`);
  return true;
}

/** Tries until there is an answer. When there is none for long, the session is ended, and its nodes with it. */
async function settled(zk: ZookeeperSession, attempt: (tries: number) => Promise<boolean>): Promise<boolean> {
  const untilMs = performance.now() + 2 * zk.timeoutMs;
  for (let tries = 1; !zk.ended.aborted; tries++) {
    try {
      return await attempt(tries);
    } catch (error) {
      if (codeOf(error) === 'ended') return false;
      if (performance.now() > untilMs) await zk.close();
      else await sleep(PAUSE_MS);
    }
  }
  return false;
}

/** Wakes one who stands in line when the one before is gone. */
export class Bell {
  readonly #zk: ZookeeperSession;
  readonly #signal: AbortSignal;
  #wake = () => {};
  // One function for all looks: the library keeps a function once for a path, and forgets none before it was called.
  readonly #ring = () => this.#wake();

  constructor(zk: ZookeeperSession, signal: AbortSignal) {
    this.#zk = zk;
    this.#signal = signal;
  }

  /** Ends when the node is gone, after so long, when the signal fires, and with the session. */
  wait(path: string, ms: number): Promise<void> {
    if (this.#signal.aborted) return Promise.resolve();
    return new Promise((resolve) => {
      const end = () => {
        clearTimeout(timer);
        for (const signal of [this.#signal, this.#zk.ended]) signal.removeEventListener('abort', end);
        resolve();
      };
      const timer = setTimeout(end, ms);
      for (const signal of [this.#signal, this.#zk.ended]) signal.addEventListener('abort', end);
      this.#wake = end;
      this.#zk.creation(path, this.#ring).catch(end); // gone already, or the next look tells why
    });
  }
}

/** Which folders this process uses, and which it left. */
export class Folders {
  readonly #users = new Map<string, number>();
  readonly #idle = new Map<string, number>();

  /** @returns what ends the use */
  use(folder: string): () => void {
    this.#users.set(folder, (this.#users.get(folder) ?? 0) + 1);
    this.#idle.delete(folder);
    return () => this.#leave(folder);
  }

  #leave(folder: string): void {
    const users = (this.#users.get(folder) ?? 0) - 1;
    if (users > 0) this.#users.set(folder, users);
    else {
      this.#users.delete(folder);
      this.#idle.set(folder, performance.now());
    }
  }

  /** Removes, at best, what has been idle for so long. */
  async sweep(zk: ZookeeperSession, idleMs = IDLE_MS): Promise<void> {
    const idle = [...this.#idle].filter(([, sinceMs]) => performance.now() - sinceMs >= idleMs);
    for (const [folder] of idle) this.#idle.delete(folder);
    await Promise.all(idle.map(([folder]) => zk.remove(folder).catch(codeOf)));
  }
}
