/**
 * Coalesces calls: callers that arrive while a run of the same key is in progress share the next run.
 *
 *   idle ──call──▶ running ──call──▶ running, the next run has callers ──run ends──▶ running
 *                    └──run ends──▶ idle
 *
 * A caller never gets the result of a run that began before its call, so it reads its own writes.
 */
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * @param everyMs a run starts this long after the one before it has ended, at the earliest; callers wait
 * @returns `work` for callers that may share a run; it rejects with what their run rejects with
 */
export function coalesce<Key, Result>(
  work: (key: Key) => Promise<Result>,
  everyMs = 0,
): (key: Key) => Promise<Result> {
  interface Run {
    /** Resolves when the next run may start. */
    readonly over: Promise<unknown>;
    next: Promise<Result> | null;
  }
  const runs = new Map<Key, Run>();

  function start(key: Key): Promise<Result> {
    const result = work(key);
    const pause = () => (everyMs === 0 ? undefined : sleep(everyMs, undefined, { ref: false }));
    const run: Run = { over: result.then(pause, pause), next: null };
    runs.set(key, run);
    run.over.then(() => {
      if (run.next === null) runs.delete(key);
    });
    return result;
  }

  return (key) => {
    const run = runs.get(key);
    if (run === undefined) return start(key);
    run.next ??= run.over.then(() => start(key));
    return run.next;
  };
}

/** @returns `work` for callers that join a run of their key in progress: unlike with `coalesce`, it began before their call */
export function shared<Key, Result>(work: (key: Key) => Promise<Result>): (key: Key) => Promise<Result> {
  const runs = new Map<Key, Promise<Result>>();
  return (key) => {
    const run = runs.get(key) ?? work(key).finally(() => runs.delete(key));
    runs.set(key, run);
    return run;
  };
}
