/** Servers that some locks need besides the stores, and the number of replicas. The environment names them. No report does: URLs may have passwords. */
import { locks } from '../../src/locks/registry.ts';

/** What each variable must name. */
const variables = {
  REDLOCK_URLS: 'at least three independent Redis servers, as redis://… URLs with commas between them',
  REDIS_WAIT: 'the number of replicas of Redis that must have a lease',
  ZOOKEEPER_URL: 'ZooKeeper servers, as host:port with commas between them',
} as const;
type LockVariable = keyof typeof variables;

/** The variable that a lock needs besides the stores; null: none. */
export function lockVariable(lock: string | null): LockVariable | null {
  const needs = lock === null ? undefined : locks.get(lock)?.description.needs;
  if (lock === 'redis-wait') return 'REDIS_WAIT';
  return needs === 'REDLOCK_URLS' || needs === 'ZOOKEEPER_URL' ? needs : null;
}

/** Every lock whose servers are not named, in words. */
export function missingLockServers(names: readonly string[], env: NodeJS.ProcessEnv): string[] {
  return names.flatMap((name) => {
    const variable = lockVariable(name);
    if (variable === null || env[variable]) return [];
    const what = `set it to ${variables[variable]}; see docs/how-to/choose-a-lock.md`;
    return [`--locks ${name} needs ${variable}: ${what}`];
  });
}
