/** A semaphore of one permit keeps the contract of every lock. It is no value of LOCK, so no separate processes open it by its name. */
import { create, SEMAPHORE } from '../../src/locks/redis-semaphore.ts';
import { redisLocks } from '../support/lock-groups.ts';
import { contractParts } from '../support/tier.ts';
import { lockContract } from './lock-suite.ts';

const parts = { ...contractParts('lock-redis-semaphore'), isOfCaller: true };
lockContract(SEMAPHORE, () => redisLocks(({ redis }) => create({ redis, permits: 1 })), parts);
