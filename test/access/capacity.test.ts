/** How many attempts a second all processes can serve, measured by processes that share one Postgres. */
import { expect, it, onTestFinished } from 'vitest';
import { type Capacity, shareCapacity } from '../../src/access/capacity.ts';
import { createLoadShedder } from '../../src/concurrency/load-shedding.ts';
import { limits } from '../../src/config/limits.ts';
import { openPostgres } from '../../src/store/postgres/pool.ts';
import { ownClocks } from '../support/clocks.ts';
import { opened } from '../support/opened.ts';
import { openTestStores } from '../support/stores.ts';

const shedder = createLoadShedder(100, 1);
const OWN = shedder.state.perSecond;

const stores = opened(openTestStores);
const postgres = opened(() => openPostgres(stores.databaseUrl, () => {}));

const clocks = ownClocks();

function share(aheadMs = 0): Capacity {
  const capacity = clocks.run(aheadMs, () => shareCapacity(postgres, shedder, () => {}));
  onTestFinished(() => capacity.stop());
  return capacity;
}
/** How many processes each of them counts: all serve the same. */
const counts = (...all: Capacity[]) => all.map(({ perSecond }) => Math.round(perSecond / OWN));

it('counts processes whose clocks differ by an hour', async () => {
  const all = [share(), share(-3_600_000), share(3_600_000)];
  await expect.poll(() => counts(...all)).toEqual([3, 3, 3]);
});

const rows = async () => (await stores.sql.query('SELECT count(*)::int AS n FROM capacities')).rows[0].n;

it('counts no process that has stopped', async () => {
  const [stopping, other] = [share(), share()];
  await expect.poll(() => counts(stopping, other)).toEqual([2, 2]);
  await stopping.stop();
  expect(await rows()).toBe(1);
  await expect.poll(() => counts(other)).toEqual([1]);
});

it('does not count a process that stopped writing, whatever the clock of Postgres was then', async () => {
  const gone = `INSERT INTO capacities SELECT gen_random_uuid(), $1, now() + direction * $2 * interval '1 ms' FROM (VALUES (-1), (1)) AS d (direction)`;
  await stores.sql.query(gone, [OWN, 1_000 * limits.tickets.capacityMaxAgeMs]);
  const all = [share(), share()];
  await expect.poll(() => counts(...all)).toEqual([2, 2]);
  expect(await rows()).toBe(2);
});
