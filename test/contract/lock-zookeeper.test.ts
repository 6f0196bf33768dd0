import { describe, it } from 'vitest';
import { create, description } from '../../src/locks/zookeeper.ts';
import { zookeeperLocks } from '../support/lock-groups.ts';
import { ensureZookeeper } from '../support/zookeeper.ts';
import { lockContract } from './lock-suite.ts';

const missing = await ensureZookeeper();
// A session that outlasts a pause of a busy machine.
if (missing === null) lockContract(description, () => zookeeperLocks(create, 12_000));
else describe(`lock zookeeper: ${missing}`, () => it.skip(missing, () => {}));
