/** SHUTDOWN_DELAY_MS: what a stop does before it closes the port. */
import { expect, it } from 'vitest';
import { buy, call, createSale } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { spawnService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);

it.each([
  ['', '1'],
  [', with WORKERS=2', '2'],
])('a stop first answers 503 to /readyz and still sells%s', async (_with, WORKERS) => {
  // Longer than the test; it ends the service.
  await using service = await spawnService({ ...envOf(stores), WORKERS, SHUTDOWN_DELAY_MS: '600000' });
  const { url } = service;
  const { id } = await createSale(url, 1);
  /** On new connections, which are spread over all workers. */
  const readiness = () =>
    Promise.all(
      Array.from({ length: 8 }, async () => {
        const { status, body } = await call(`${url}/readyz`, { headers: { connection: 'close' } });
        return `${status} ${body.status}`;
      }),
    ).then((all) => [...new Set(all)]);
  await expect.poll(readiness).toEqual(['200 ok']);
  service.process.kill('SIGTERM');
  await expect.poll(readiness).toEqual(['503 stopping']);
  expect(await buy(url, id, 'ann')).toMatchObject({ status: 201 });
  expect((await call(`${url}/healthz`)).status).toBe(200);
  expect(service.process.exitCode).toBeNull();
});

it.each(['1', '2'])('then it stops as without a delay, with WORKERS=%s', async (WORKERS) => {
  await using service = await spawnService({ ...envOf(stores), WORKERS, SHUTDOWN_DELAY_MS: '1' });
  expect(await service.stop()).toBe(0);
});
