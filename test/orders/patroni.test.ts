/**
 * Postgres that Patroni manages, in the middle of a sale: the leader is switched over, killed, or cut off from etcd, or its Patroni alone is
 * killed. Each round leaves another server as the leader, so that it comes back to one that was the leader before.
 *
 * TEST_SIZE=nightly FAILOVERS=10 npx vitest run test/orders/patroni.test.ts repeats each ten times, and logs them: see
 * test/support/failover.ts.
 */
import { describe, it } from 'vitest';
import { openPatroni, whyNoPatroni } from '../../lab/servers/patroni.ts';
import { failovers, SEEDS, sellThrough, TIMEOUT_MS } from '../support/failover.ts';
import { opened } from '../support/opened.ts';
import { openEnsembleStores } from '../support/stores.ts';
import { bySize } from '../support/tier.ts';
import { World } from '../support/world.ts';

const reason = whyNoPatroni();
describe.skipIf(reason !== null)(`Patroni${reason === null ? '' : ` (${reason})`}`, () => {
  const patroni = opened(openPatroni);
  const faults = {
    kill: () => patroni.kill(),
    'switch-over': () => patroni.switchOver(),
    'cut from etcd': () => patroni.cutOff(),
    'kill of Patroni alone': () => patroni.killPatroni(),
  };
  const endings = ['kill', 'switch-over', 'cut from etcd', 'kill of Patroni alone'] as const;

  async function sell(way: 'HAProxy' | 'addresses', strategy: string, ending: keyof typeof faults) {
    const { url, direct, sql } = patroni;
    const pair = { url: way === 'HAProxy' ? url : direct, sql };
    await using world = await World.open({
      strategy,
      services: 2,
      stores: await openEnsembleStores({ pair }),
    });
    const fault = async () => {
      await faults[ending]();
      await patroni.untilWhole();
    };
    for (const seed of SEEDS) await sellThrough(world, `Patroni, ${way}: ${ending}`, seed, fault);
  }

  it.each(failovers(['lua', 'group-commit'], [...endings]))(
    '%s, behind HAProxy, keeps every promise through a failover: %s',
    (strategy, ending) => sell('HAProxy', strategy, ending),
    TIMEOUT_MS,
  );

  it.each(bySize({ core: [], full: [], nightly: failovers(['lua', 'group-commit'], [...endings]) }))(
    '%s, with the addresses of all servers, keeps every promise through a failover: %s',
    (strategy, ending) => sell('addresses', strategy, ending),
    TIMEOUT_MS,
  );
});
