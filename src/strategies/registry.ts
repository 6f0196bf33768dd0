/** Every strategy by its name in `STRATEGY`. Read by composition roots and contract tests only. */
import * as advisoryLock from './postgres/advisory-lock.ts';
import * as conditionalUpdate from './postgres/conditional-update.ts';
import * as forUpdate from './postgres/for-update.ts';
import * as forUpdatePrisma from './postgres/for-update-prisma.ts';
import * as groupCommit from './postgres/group-commit.ts';
import * as optimistic from './postgres/optimistic.ts';
import * as skipLocked from './postgres/skip-locked.ts';
import * as uniqueKey from './postgres/unique-key.ts';
import * as globalLock from './redis/global-lock.ts';
import * as lua from './redis/lua.ts';
import * as segmentedLock from './redis/segmented-lock.ts';
import * as unsafe from './redis/unsafe.ts';
import type { StrategyEntry } from './strategy.ts';

const entries: readonly StrategyEntry[] = [
  unsafe,
  globalLock,
  segmentedLock,
  lua,
  forUpdate,
  forUpdatePrisma,
  uniqueKey,
  conditionalUpdate,
  optimistic,
  advisoryLock,
  skipLocked,
  groupCommit,
];

export const strategies: ReadonlyMap<string, StrategyEntry> = new Map(
  entries.map((entry) => [entry.description.name, entry]),
);
