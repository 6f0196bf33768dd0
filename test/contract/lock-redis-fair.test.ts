import { create, description } from '../../src/locks/redis-fair.ts';
import { redisLocks } from '../support/lock-groups.ts';
import { lockContract } from './lock-suite.ts';

lockContract(description, () => redisLocks(create));
