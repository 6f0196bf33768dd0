/**
 * The servers that some locks have beside the stores of the trials. The environment names them; the bench
 * passes them on with the locks that need them, and leaves them alone. They may hold passwords: no report shows them.
 */
import { locks } from '../../src/locks/registry.ts';

/** What each variable must name. */
const variables = {
  REDLOCK_URLS: 'at least three independent Redis servers, as redis://… URLs with commas between them',
  ZOOKEEPER_URL: 'ZooKeeper servers, as host:port with commas between them',
} as const;
type LockVariable = keyof typeof variables;

/** The variable that a lock needs beside the stores; null: none. */
export function lockVariable(lock: string | null): LockVariable | null {
  const needs = lock === null ? undefined : locks.get(lock)?.description.needs;
  return needs === 'REDLOCK_URLS' || needs === 'ZOOKEEPER_URL' ? needs : null;
}

/** Every lock whose servers are not named, in words. */
export function missingLockServers(
  names: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
): string[] {
  return names.flatMap((name) => {
    const variable = lockVariable(name);
    if (variable === null || env[variable]) return [];
    return [
      `--locks ${name} needs ${variable}: set it to ${variables[variable]}; see docs/how-to/choose-a-lock.md`,
    ];
  });
}
