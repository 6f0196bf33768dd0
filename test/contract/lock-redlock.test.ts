import { create, description } from '../../src/locks/redlock.ts';
import { crashing, openIndependent } from '../support/lock-groups.ts';
import { lockContract } from './lock-suite.ts';

lockContract(description, async () => crashing(await openIndependent(create)));
