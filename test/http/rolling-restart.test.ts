/**
 * Two services are stopped and started in turn while clients with kept connections, as a proxy has, send attempts. Each client
 * goes to the other service when one refuses the connection, and repeats there what was cut, as customers do.
 */

import { once } from 'node:events';
import { Agent, request } from 'node:http';
import { expect, it } from 'vitest';
import { createSale, eventually, users } from '../support/client.ts';
import { startService } from '../support/service.ts';
import { openTestStores } from '../support/stores.ts';
import { World } from '../support/world.ts';

const CLIENTS = 16;
const RESTARTS = 3;

it('a rolling restart leaves no attempt without its order', async () => {
  await using world = await World.open({ strategy: 'lua', services: 2 });
  const sale = await world.openSale(1_000_000);
  const urls = await Promise.all(world.services.map(({ url }) => url));
  const lost: string[] = [];
  let accepted = 0;
  let isOver = false;

  /** One customer after the other. */
  async function shop(client: string): Promise<void> {
    for (let n = 0; !isOver; n++) {
      let wasCut = false;
      for (let to = n; ; to++) {
        const answer = await sale
          .attempt(`${client}-${n}`, urls[to % urls.length]!)
          .catch((error: Error & { cause?: { code?: string } }) => error.cause?.code ?? error.message);
        if (typeof answer === 'string') {
          wasCut ||= answer !== 'ECONNREFUSED'; // which never reached the service
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
    await expect.poll(() => accepted, { timeout: 60_000 }).toBeGreaterThan(before + 200);
  }
  isOver = true;
  await Promise.all(shopping);
  expect(lost).toEqual([]);
  expect((await sale.units()).sold).toBe(accepted);
});

it('a stopping service tells no client to leave before it has stopped listening', async () => {
  await using stores = await openTestStores();
  await using service = await startService({ DATABASE_URL: stores.databaseUrl, REDIS_URL: stores.redisUrl });
  const { id } = await createSale(service.url, 1);
  using kept = Object.assign(new Agent({ keepAlive: true, maxSockets: 1 }), {
    [Symbol.dispose]: () => kept.destroy(),
  });
  const read = async (agent?: Agent) => {
    const sent = request(`${service.url}/sales/${id}`, agent === undefined ? {} : { agent });
    const [response] = await once(sent.end(), 'response');
    response.resume();
    await once(response, 'end');
    return String(response.headers.connection);
  };
  const code = (error: NodeJS.ErrnoException) => error.code;
  expect(await read(kept)).toBe('keep-alive');
  service.process.kill('SIGTERM');
  await eventually(
    () => read(kept),
    (connection) => connection === 'close',
  );
  expect(await read(new Agent()).catch(code)).toBe('ECONNREFUSED');
});
