/** How many attempts a second all processes can serve, measured by processes with separate connections to one Redis. */
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { type Capacity, localCapacity, shareCapacity } from '../../src/access/capacity.ts';
import { createLoadShedder } from '../../src/concurrency/load-shedding.ts';
import { limits } from '../../src/config/limits.ts';
import { openRedis } from '../../src/store/redis/connection.ts';
import { ownClocks } from '../support/clocks.ts';
import { opened } from '../support/opened.ts';
import { openTestStores } from '../support/stores.ts';

const KEY = 'stampede:capacity';
const shedder = createLoadShedder(100, 1);
const OWN = shedder.state.perSecond;

const stores = opened(openTestStores);
const redis = opened(() => openRedis(stores.redisUrl, () => {}));
beforeEach(() => stores.redis.del(KEY));

const clocks = ownClocks();

function share(aheadMs = 0): Capacity {
  const capacity = clocks.run(aheadMs, () => shareCapacity(redis, shedder, () => {}));
  onTestFinished(() => capacity.stop());
  return capacity;
}
/** How many processes each of them counts: all serve the same. */
const counts = (...all: Capacity[]) => all.map(({ perSecond }) => Math.round(perSecond / OWN));

it('without Redis, the capacity is that of this process for each process of the service', async () => {
  const capacity = localCapacity(shedder, 3);
  expect(counts(capacity)).toEqual([3]);
  await capacity.stop();
});

it('counts processes whose clocks differ by an hour', async () => {
  const all = [share(), share(-3_600_000), share(3_600_000)];
  await expect.poll(() => counts(...all)).toEqual([3, 3, 3]);
});

it('does not count a process that stopped writing, whatever the clock of Redis was then', async () => {
  const redisMs = Number((await stores.redis.time())[0]) * 1_000;
  const foreverMs = 1_000 * limits.tickets.capacityMaxAgeMs;
  const gone = { past: `${OWN} ${redisMs - foreverMs}`, future: `${OWN} ${redisMs + foreverMs}` };
  await stores.redis.hset(KEY, gone);
  const all = [share(), share()];
  await expect.poll(() => counts(...all)).toEqual([2, 2]);
  expect(await stores.redis.hlen(KEY)).toBe(2);
});
