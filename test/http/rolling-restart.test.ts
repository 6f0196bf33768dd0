/**
 * Two services are stopped and started in turn while clients with kept connections, as a proxy has, send attempts. A stopping
 * service keeps idle connections open for a second. A process that gets no CPU for a good part of it can lose requests;
 * an answer of it is late then, and the restarts are repeated.
 */
import { expect, it } from 'vitest';
import { users } from '../support/client.ts';
import { World } from '../support/world.ts';

const CLIENTS = 16;
const RESTARTS = 3;
const TRIES = 5;
const STALL_MS = 250;

it('a rolling restart loses no request', async () => {
  await using world = await World.open({ strategy: 'lua', services: 2 });
  const sale = await world.openSale(1_000_000);
  const urls = await Promise.all(world.services.map(({ url }) => url));
  let lost: string[] = [];
  let everLost = 0;
  let accepted = 0;
  let slowestMs = 0;
  let isOver = false;

  /** One customer after the other. A service that refuses the connection did not get the request: the other one does. */
  async function shop(client: string): Promise<void> {
    for (let n = 0; !isOver; n++) {
      for (let to = n; ; to++) {
        const sinceMs = performance.now();
        const answer = await sale
          .attempt(`${client}-${n}`, urls[to % urls.length]!)
          .catch((error: Error & { cause?: { code?: string } }) => error.cause?.code ?? error.message);
        if (answer === 'ECONNREFUSED') continue;
        slowestMs = Math.max(slowestMs, performance.now() - sinceMs);
        if (typeof answer === 'string' || answer.status !== 201) lost.push(JSON.stringify(answer));
        else accepted++;
        break;
      }
    }
  }

  async function restartAll(): Promise<void> {
    isOver = false;
    const shopping = users(CLIENTS).map((client) => shop(`${client}-${accepted}`));
    for (let n = 0; n < RESTARTS * urls.length; n++) {
      const service = world.services[n % urls.length]!;
      const before = accepted;
      expect(await service.stop()).toBe(0);
      await service.start();
      urls[n % urls.length] = await service.url;
      await expect.poll(() => accepted, { timeout: 60_000 }).toBeGreaterThan(before + 200);
    }
    isOver = true;
    await Promise.all(shopping);
  }

  for (let tries = 1; ; tries++) {
    lost = [];
    slowestMs = 0;
    await restartAll();
    everLost += lost.length;
    if (lost.length === 0 || slowestMs < STALL_MS || tries === TRIES) break;
  }
  expect(lost).toEqual([]);
  const { sold } = await sale.units();
  expect(sold).toBeGreaterThanOrEqual(accepted);
  expect(sold).toBeLessThanOrEqual(accepted + everLost);
});
