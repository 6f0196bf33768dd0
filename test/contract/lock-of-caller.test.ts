/** The locks of the package, on a caller's client of either library and on a caller's pool: servers that clients reach directly. */
import { describe, it } from 'vitest';
import {
  type CallersRedis,
  createLockRows,
  postgresAdvisoryLock,
  postgresRowLock,
  redisLock,
  redlock,
} from '../../src/locks/index.ts';
import * as postgresAdvisory from '../../src/locks/postgres-advisory.ts';
import * as postgresRow from '../../src/locks/postgres-row.ts';
import * as redis from '../../src/locks/redis.ts';
import * as redlockOf from '../../src/locks/redlock.ts';
import { ioredis, nodeRedis } from '../support/caller-clients.ts';
import { crashing, openIndependent, postgresLocks, redisLocksBy } from '../support/lock-groups.ts';
import { openTestStores } from '../support/stores.ts';
import { contractParts, describeInFull } from '../support/tier.ts';
import { held } from './lock-steps.ts';
import { lockContract } from './lock-suite.ts';

const parts = { ...contractParts('lock-of-caller'), isOfCaller: true };
const LIBRARIES: readonly (readonly [string, (url: string) => CallersRedis])[] = [
  ['ioredis', ioredis],
  ['node-redis', nodeRedis],
];

describe.each(LIBRARIES)('on a client of %s', (library, clientOf) => {
  const one = () => redisLocksBy(async (url) => ({ lock: await redisLock({ redis: clientOf(url) }) }));
  lockContract(redis.description, one, parts);

  // With ioredis, the contract of redlock runs on the service's clients.
  if (library === 'ioredis') return;
  describeInFull('in full', () => {
    const onMany = async () =>
      crashing(
        await openIndependent(async ({ urls }) => redlock({ redis: urls.map((url) => clientOf(url)) })),
      );
    lockContract(redlockOf.description, onMany, { ...parts, core: true });
  });
});

describeInFull("on a caller's pool", () => {
  const on = (open: typeof postgresRowLock) => () =>
    postgresLocks(({ postgres: { pool } }) => open({ pool }));
  const whole = { ...parts, core: true };
  lockContract(postgresRow.description, on(postgresRowLock), whole);
  lockContract(postgresAdvisory.description, on(postgresAdvisoryLock), whole);

  it('makes the table of postgres-row where there is none', async () => {
    await using stores = await openTestStores();
    const pool = stores.sql;
    await pool.query('DROP TABLE lock_rows');
    for (let times = 0; times < 2; times++) await createLockRows(pool);
    const lock = await postgresRowLock({ pool });
    await (await held(lock, 'new')).release();
    await lock.close();
  });
});
