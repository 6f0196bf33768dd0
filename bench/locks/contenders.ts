/** Who is measured: every lock of the registry, two libraries, and a control that locks nothing. */
import { readFileSync } from 'node:fs';
import { suggestion } from '../../src/config/suggest.ts';
import type { LockDescription } from '../../src/locks/lock.ts';
import { locks } from '../../src/locks/registry.ts';

/** The servers that a contender runs on. */
export type ServerKind = 'redis' | 'redis-replica' | 'redis-five' | 'zookeeper' | 'postgres';

export interface Contender {
  readonly name: string;
  readonly servers: ServerKind;
  /** What it is, and for a library how it was set up. */
  readonly summary: string;
}

const kinds: Record<LockDescription['needs'], ServerKind> = {
  REDIS_URL: 'redis',
  REDLOCK_URLS: 'redis-five',
  ZOOKEEPER_URL: 'zookeeper',
  DATABASE_URL: 'postgres',
};

const own = [...locks.values()].map(
  ({ description: { name, needs, summary } }): Contender => ({
    name,
    servers: name === 'redis-wait' ? 'redis-replica' : kinds[needs],
    summary,
  }),
);

function versionOf(dependency: string): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  const { devDependencies } = JSON.parse(text) as { devDependencies: Record<string, string> };
  return `${dependency} ${devDependencies[dependency]}`;
}

const redlock = `${versionOf('redlock')} with its defaults (asks again after 100 to 300 ms), but enough retries that no waiter gives up`;
const semaphore = `${versionOf('redis-semaphore')} with its defaults (asks again after 10 ms), but time enough that no waiter gives up`;

const libraries: readonly Contender[] = [
  { name: 'redlock-5', servers: 'redis', summary: `${redlock}; one server` },
  { name: 'redlock-5-quorum', servers: 'redis-five', summary: `${redlock}; five servers` },
  { name: 'redis-semaphore', servers: 'redis', summary: `Mutex of ${semaphore}; one server` },
  {
    name: 'redis-semaphore-quorum',
    servers: 'redis-five',
    summary: `RedlockMutex of ${semaphore}; five servers`,
  },
];

/** Not a lock: everybody is let in. It shows that the bench sees two holders when there are two. */
export const CONTROL = 'none';
const control: Contender = {
  name: CONTROL,
  servers: 'redis',
  summary: 'a control that locks nothing, and must be seen to let two holders in',
};

/** The ones that `--locks all` means. */
export const everyone: readonly Contender[] = [...own, ...libraries];

/** Those that were named, in the order of the list above, or every mistake in the names. */
export function chosen(names: 'all' | readonly string[]): {
  readonly contenders: readonly Contender[];
  readonly mistakes: readonly string[];
} {
  if (names === 'all') return { contenders: everyone, mistakes: [] };
  const all = [...everyone, control];
  const known = all.map(({ name }) => name);
  const mistakes = names
    .filter((name) => !known.includes(name))
    .map((name) => `--locks: there is no lock "${name}"${suggestion(name, known)}`);
  return { contenders: all.filter(({ name }) => names.includes(name)), mistakes };
}

/** Each round runs everyone once, and begins further on in the list, so that nobody always runs first or last. */
export function turns<T>(contenders: readonly T[], rounds: number): { round: number; contender: T }[] {
  return Array.from({ length: rounds }, (_, index) => {
    const from = Math.floor((index * contenders.length) / rounds);
    const rotated = [...contenders.slice(from), ...contenders.slice(0, from)];
    return rotated.map((contender) => ({ round: index + 1, contender }));
  }).flat();
}
