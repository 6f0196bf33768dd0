/** ADMIN_PORT: administrative routes, metrics and the API description have a port of their own, in all worker processes. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { expect, it } from 'vitest';
import { TcpProxy } from '../../lab/proxy.ts';
import { call, createSale, eventually, post } from '../support/client.ts';
import { ADMINISTRATIVE, askRoute, makeThings } from '../support/every-route.ts';
import { opened } from '../support/opened.ts';
import { spawnService, startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const ADMIN_TOKEN = 'a-token-of-the-test';
const authorization = `Bearer ${ADMIN_TOKEN}`;

const stores = opened(openTestStores);

const publicPort = async (url: string, admin: string) => {
  const things = { ...(await makeThings(admin, stores.sql)), url };
  for (const route of ADMINISTRATIVE) {
    const { status, problem } = await askRoute(route, things, { headers: { authorization } });
    expect([route, status, problem]).toEqual([route, 404, 'not-found']);
  }
  for (const path of ['/metrics', '/docs/', '/openapi.json', '/console', '/tasks']) {
    expect((await call(`${url}${path}`)).status, path).toBe(404);
    expect((await call(`${admin}${path}`)).status, path).toBe(200);
  }
  const { id } = await createSale(admin, 2);
  for (const [port, userId] of [
    [url, 'ann'],
    [admin, 'ben'],
  ] as const) {
    expect((await post(`${port}/sales/${id}/orders`, { userId })).status).toBe(201);
    expect((await call(`${port}/healthz`)).status).toBe(200);
    expect((await call(`${port}/readyz`)).status).toBe(200);
  }
  expect((await call(`${url}/sales/${id}`)).body).toMatchObject({ sold: 2 });
};

it('the main port has no administrative route; both serve customers, and the admin port everything', async () => {
  await using service = await startService({ ...envOf(stores), ADMIN_PORT: '0' });
  await publicPort(service.url, service.adminUrl!);
});

it('so with two processes', async () => {
  await using service = await spawnService({ ...envOf(stores), ADMIN_PORT: '0', WORKERS: '2' });
  const port = /"adminPort":(\d+)/.exec(service.log.join('\n'))![1];
  await publicPort(service.url, `http://127.0.0.1:${port}`);
});

it('an administrator’s token reaches every order, and the cause of an outage, on the admin port only', async () => {
  await using redis = await TcpProxy.open({ port: Number(new URL(stores.redisUrl).port) });
  await using service = await startService({
    DATABASE_URL: stores.databaseUrl,
    REDIS_URL: `redis://127.0.0.1:${redis.port}`,
    ADMIN_PORT: '0',
    ADMIN_TOKEN,
    AUTH: 'jwt',
    AUTH_JWKS_URL: 'http://127.0.0.1:1/keys',
    AUTH_ISSUER: 'https://issuer.test',
    AUTH_AUDIENCE: 'test',
  });
  const admin = service.adminUrl!;
  const order = '/orders/01900000-0000-7000-8000-000000000001';
  const get = (url: string, path = order, token = authorization) =>
    call(url + path, { headers: { authorization: token } });
  expect((await get(admin)).problem).toBe('unknown-order');
  expect((await get(service.url)).problem).toBe('unauthorized');
  expect((await call(`${admin}/tasks`)).problem).toBe('unauthorized');

  redis.set('refuse');
  const { body } = await eventually(
    () => get(admin, '/readyz'),
    ({ status }) => status === 503,
  );
  expect((body.stores as { redis: string }).redis).not.toMatch(/^(ok|does not answer)$/);
  for (const { body } of [await get(service.url, '/readyz'), await call(`${admin}/readyz`)])
    expect(body).toMatchObject({
      status: 'unavailable',
      stores: { postgres: 'ok', redis: 'does not answer' },
    });
});

it('bounds the connections to the admin port, which a stop closes, too', async () => {
  await using service = await startService({ ...envOf(stores), ADMIN_PORT: '0' });
  const adminPort = Number(new URL(service.adminUrl!).port);
  let open = 0;
  const sockets = Array.from({ length: 150 }, () => {
    const socket = connect(adminPort, '127.0.0.1').on('error', () => {});
    socket.on('connect', () => open++).on('close', () => open--);
    return socket;
  });
  await Promise.all(sockets.map((socket) => once(socket, 'connect')));
  await expect.poll(() => open).toBe(128);
  for (const socket of sockets) socket.destroy();
  await service.stop();
  await expect(fetch(`${service.adminUrl}/healthz`)).rejects.toThrow('fetch failed');
});
