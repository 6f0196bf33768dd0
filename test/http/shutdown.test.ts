/** What a stop does: before it closes the port (SHUTDOWN_DELAY_MS), and with the connections. */
import { createServer, type ServerResponse } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { expect, it } from 'vitest';
import { listenOn, stopListening } from '../../src/http/listen.ts';
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

it('a connection on which nothing was sent is closed before the requests in progress end', async () => {
  let answer: ServerResponse | undefined;
  const server = createServer((_req, res) => {
    answer = res;
  });
  await listenOn(server, { port: 0, host: '127.0.0.1' });
  const { port } = server.address() as AddressInfo;
  const silent = connect(port, '127.0.0.1').resume();
  const closed = new Promise((resolve) => silent.once('close', resolve));
  const asked = call(`http://127.0.0.1:${port}/`);
  await expect.poll(() => answer).toBeDefined();
  const stopped = stopListening(server);
  await closed;
  answer!.setHeader('Content-Type', 'application/json').end('{}');
  expect((await asked).status).toBe(200);
  await stopped;
});
