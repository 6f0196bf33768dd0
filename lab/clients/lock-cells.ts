/** The compared locks: those of the registry, three libraries, and a control that locks nothing. */
import { readFileSync } from 'node:fs';
import type { LockDescription } from '../../src/locks/lock.ts';
import { locks } from '../../src/locks/registry.ts';

/** The servers that a lock runs on. */
export type ServerKind = 'redis' | 'valkey' | 'redis-replica' | 'redis-five' | 'zookeeper' | 'postgres';

export interface LockCell {
  readonly name: string;
  /** One sentence. */
  readonly summary: string;
  /** A control that the results must show to be wrong. */
  readonly unsafe: boolean;
  /** The same as another cell, to show how far two equal cells differ. */
  readonly control: boolean;
  /** The name in the registry or in `open-lock.ts`; the A/A control has another `name`. */
  readonly lock: string;
  readonly servers: ServerKind;
}

const kinds: Record<LockDescription['needs'], ServerKind> = {
  REDIS_URL: 'redis',
  REDLOCK_URLS: 'redis-five',
  ZOOKEEPER_URL: 'zookeeper',
  DATABASE_URL: 'postgres',
};

/** Locks that need more from Redis than others do. */
const exceptions: Readonly<Record<string, ServerKind>> = {
  'redis-cas': 'valkey',
  'redis-wait': 'redis-replica',
};

const cell = (lock: string, servers: ServerKind, summary: string, unsafe = false): LockCell => {
  return { name: lock, lock, servers, summary, unsafe, control: false };
};

const own = [...locks.values()].map(({ description: { name, needs, summary } }) =>
  cell(name, exceptions[name] ?? kinds[needs], summary),
);

function versionOf(dependency: string): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return `${dependency} ${JSON.parse(text).devDependencies[dependency]}`;
}

const patient = 'but no waiter gives up';
const redlock = `${versionOf('redlock')} with its defaults (retries after 100 to 300 ms), ${patient}`;
const semaphore = `${versionOf('redis-semaphore')} with its defaults (retries after 10 ms), ${patient}`;
const universal = `${versionOf('redlock-universal')} with its defaults (three retries, each after 100 ms, or 200 ms with several servers), ${patient}`;

/** Not a lock: it shows that the bench sees two holders when there are two. */
export const CONTROL = 'none';

/** What `--locks all` means. */
export const everyLock: readonly LockCell[] = [
  ...own,
  cell('redlock-5', 'redis', `${redlock}; one server`),
  cell('redlock-5-quorum', 'redis-five', `${redlock}; five servers`),
  cell('redis-semaphore', 'redis', `Mutex of ${semaphore}; one server`),
  cell('redis-semaphore-quorum', 'redis-five', `RedlockMutex of ${semaphore}; five servers`),
  cell('redlock-universal', 'redis', `createLock of ${universal}; one server`),
  cell('redlock-universal-quorum', 'redis-five', `createRedlock of ${universal}; five servers`),
  cell(CONTROL, 'redis', 'locks nothing, and must be seen to admit two holders', true),
];

/** Locks whose scripts redis-cas replaces by commands, on the same server, to compare their speed. */
export const onValkey: readonly LockCell[] = ['redis-owner', 'redis-watchdog'].map((lock) => ({
  ...cell(lock, 'valkey', `${locks.get(lock)!.description.summary} On Valkey, as redis-cas.`),
  name: `${lock}-valkey`,
}));

/** What an option may name: these locks, or all of them. */
export const namesOf = (list: readonly LockCell[]): string[] => [...list.map(({ name }) => name), 'all'];

/** The named locks, in the order of the list. */
export const chosenLocks = (
  names: readonly string[],
  list: readonly LockCell[] = everyLock,
): readonly LockCell[] => (names.includes('all') ? list : list.filter(({ name }) => names.includes(name)));
