import { create, description } from '../../src/locks/rungs/redis.ts';
import { redisLocks } from '../support/lock-process.ts';
import { lockContract } from './lock-suite.ts';

lockContract(description, () => redisLocks(create));
