import { description } from '../../src/locks/redis-wait.ts';
import { crashing, openReplicated, waitingFor } from '../support/lock-groups.ts';
import { lockContract } from './lock-suite.ts';

lockContract(description, async () => crashing(await openReplicated(waitingFor(1))));
