/**
 * `WAIT` blocks its connection, and counts acknowledgements of what that connection wrote. So all callers that arrive during one
 * WAIT share the next.
 */

/** Healthy replicas acknowledge within a round trip. The connection is blocked until then. */
export const REPLICATION_MS = 200;

export interface Replication {
  /**
   * Whether enough replicas have what the connection wrote, or read, before this call.
   * @param key on the same server, near what was written; keys that begin with it may be written
   * @throws what the check throws
   */
  confirm(key: string): Promise<boolean>;
}

/** @param check receives each key of its callers once, and returns those near which replicas have all writes from before its call */
export function sharedCheck(check: (keys: readonly string[]) => Promise<readonly string[]>): Replication {
  let running: Promise<unknown> = Promise.resolve();
  let next: Promise<ReadonlySet<string>> | null = null;
  let keys = new Set<string>();
  return {
    confirm(key) {
      keys.add(key);
      next ??= running.then(() => {
        next = null;
        const checking = check([...keys]).then((replicated) => new Set(replicated));
        keys = new Set();
        running = checking.catch(() => {});
        return checking;
      });
      return next.then((replicated) => replicated.has(key));
    },
  };
}
