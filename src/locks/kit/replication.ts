/**
 * `WAIT` blocks its connection, and counts acknowledgements of what that connection wrote. So all callers that arrive during one
 * WAIT share the next.
 */

/** Healthy replicas acknowledge within a round trip. The connection is blocked until then. */
export const REPLICATION_MS = 200;

export interface Replication {
  /**
   * Whether enough replicas have what the connection wrote, or read, before this call.
   * @param key on the same server; keys that begin with it may be written
   * @throws what the check throws
   */
  confirm(key: string): Promise<boolean>;
}

/** @param check whether the replicas have all writes from before its call */
export function sharedCheck(check: (key: string) => Promise<boolean>): Replication {
  let running: Promise<unknown> = Promise.resolve();
  let next: Promise<boolean> | null = null;
  return {
    confirm(key) {
      next ??= running.then(() => {
        next = null;
        const checking = check(key);
        running = checking.catch(() => {});
        return checking;
      });
      return next;
    },
  };
}
