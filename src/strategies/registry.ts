/** Every strategy by its name in `STRATEGY`. Read by composition roots and contract tests only. */
import * as forUpdate from './for-update.ts';
import * as forUpdatePrisma from './for-update-prisma.ts';
import * as globalLock from './global-lock.ts';
import * as lua from './lua.ts';
import * as segmentedLock from './segmented-lock.ts';
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
];

export const strategies: ReadonlyMap<string, StrategyEntry> = new Map(
  entries.map((entry) => [entry.description.name, entry]),
);
