/**
 * Two services are stopped and started in turn while clients with keep-alive connections, as a proxy has, send attempts. When a
 * service refuses or cuts a connection, the client repeats the attempt at the other service, as customers do.
 */

import { expect, it } from 'vitest';
import { users } from '../support/client.ts';
import { bySize } from '../support/tier.ts';
import { World } from '../support/world.ts';

const CLIENTS = 16;
const RESTARTS = bySize({ core: 1, full: 2, nightly: 5 });

it('a rolling restart leaves no attempt without its order', { timeout: 600_000 }, async () => {
  await using world = await World.open({ strategy: 'lua', services: 2, processes: true });
  const sale = await world.openSale(1_000_000);
  const urls = await Promise.all(world.services.map(({ url }) => url));
  const lost: string[] = [];
  let accepted = 0;
  let isOver = false;

  /** Buys for one customer after the other. */
  async function shop(client: string): Promise<void> {
    for (let n = 0; !isOver; n++) {
      let wasCut = false;
      for (let to = n; ; to++) {
        const answer = await sale
          .attempt(`${client}-${n}`, urls[to % urls.length]!)
          .catch((error: Error & { cause?: { code?: string } }) => error.cause?.code ?? error.message);
        if (typeof answer === 'string') {
          wasCut ||= answer !== 'ECONNREFUSED'; // refused: it never reached the service
          continue;
        }
        // On a busy machine an attempt may wait too long for a store.
        if (answer.status === 503) {
          wasCut ||= answer.body.type === '/problems/unknown-outcome';
          continue;
        }
        if (answer.status === 201 || (wasCut && answer.status === 200)) accepted++;
        else lost.push(JSON.stringify(answer));
        break;
      }
    }
  }

  const shopping = users(CLIENTS).map(shop);
  for (let n = 0; n < RESTARTS * urls.length; n++) {
    const service = world.services[n % urls.length]!;
    const before = accepted;
    expect(await service.stop()).toBe(0);
    await service.start();
    urls[n % urls.length] = await service.url;
    await expect.poll(() => accepted).toBeGreaterThan(before + 200);
  }
  isOver = true;
  await Promise.all(shopping);
  expect(lost).toEqual([]);
  expect((await sale.units()).sold).toBe(accepted);
});
