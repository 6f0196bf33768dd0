/** Every strategy by its name in `STRATEGY`. Read by composition roots and contract tests only. */
import * as advisoryLock from './advisory-lock.ts';
import * as conditionalUpdate from './conditional-update.ts';
import * as forUpdate from './for-update.ts';
import * as forUpdatePrisma from './for-update-prisma.ts';
import * as globalLock from './global-lock.ts';
import * as groupCommit from './group-commit.ts';
import * as lua from './lua.ts';
import * as optimistic from './optimistic.ts';
import * as segmentedLock from './segmented-lock.ts';
import * as skipLocked from './skip-locked.ts';
import type { StrategyEntry } from './strategy.ts';
import * as uniqueKey from './unique-key.ts';
import * as unsafe from './unsafe.ts';

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
