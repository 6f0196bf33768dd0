/** Every strategy by its name in `STRATEGY`. Read by composition roots and contract tests only. */

import { StartError } from '../config/errors.ts';
import type { StrategyDescription } from '../domain/guarantees.ts';
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
import type { RedisStrategyContext, Strategy, StrategyContext, StrategyEntry } from './strategy.ts';

interface Implementation<Context> {
  readonly description: StrategyDescription;
  create(context: Context): Strategy;
}

const inRedis = ({ description, create }: Implementation<RedisStrategyContext>): StrategyEntry => ({
  description,
  create(context, redis) {
    if (redis === null) throw new StartError(`STRATEGY=${description.name} needs Redis.`);
    return create({ ...context, ...redis });
  },
});

const inPostgres = ({ description, create }: Implementation<StrategyContext>): StrategyEntry => ({
  description,
  create: (context) => create(context),
});

const entries: readonly StrategyEntry[] = [
  ...[unsafe, globalLock, segmentedLock, lua].map(inRedis),
  ...[
    forUpdate,
    forUpdatePrisma,
    uniqueKey,
    conditionalUpdate,
    optimistic,
    advisoryLock,
    skipLocked,
    groupCommit,
  ].map(inPostgres),
];

export const strategies: ReadonlyMap<string, StrategyEntry> = new Map(
  entries.map((entry) => [entry.description.name, entry]),
);
