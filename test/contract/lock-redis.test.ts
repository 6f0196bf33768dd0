import { create, description } from '../../src/locks/redis.ts';
import { redisLocks } from '../support/lock-groups.ts';
import { lockContract } from './lock-suite.ts';

lockContract(description, () => redisLocks(create));
