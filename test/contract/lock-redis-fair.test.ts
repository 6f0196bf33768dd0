import { create, description } from '../../src/locks/redis-fair.ts';
import { redisLocks } from '../support/lock-groups.ts';
import { PATIENCE_MS } from './lock-steps.ts';
import { lockContract } from './lock-suite.ts';

// Places that outlast a pause of a busy machine.
lockContract(description, () => redisLocks((context) => create(context, PATIENCE_MS)));
