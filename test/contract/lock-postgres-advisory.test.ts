import { create, description } from '../../src/locks/postgres-advisory.ts';
import { postgresLocks } from '../support/lock-groups.ts';
import { lockContract } from './lock-suite.ts';

lockContract(description, () => postgresLocks(create));
