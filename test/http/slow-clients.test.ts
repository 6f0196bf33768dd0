/** Clients that connect and send nothing, or slowly, or too many at once: they are disconnected, and others are served. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { expect, it } from 'vitest';
import { limits } from '../../src/config/limits.ts';
import { buy, call, createSale, eventually, users } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { spawnService, startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const IDLE = 200;
const POLITE = 10;

const stores = opened(openTestStores);
const service = opened(() => startService(envOf(stores)));

async function open(url = service.url): Promise<Socket> {
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  socket.on('error', () => {});
  await once(socket, 'connect');
  return socket;
}

/** Sends part of a request. @returns the first line of the answer, once the connection is closed */
async function sendPart(text: string): Promise<string> {
  const socket = await open();
  let answer = '';
  socket.on('data', (chunk) => {
    answer += chunk;
  });
  socket.write(text);
  await once(socket, 'close');
  return answer.split('\r\n')[0]!;
}

it('serves others beside connections that send nothing, and closes these; answers 408 to parts of a request', async () => {
  const sale = await createSale(service.url, POLITE);
  const openIdle = async () => ({ closed: once((await open()).resume(), 'close') });
  const idle: { readonly closed: Promise<unknown> }[] = [];
  while (idle.length < IDLE) idle.push(...(await Promise.all(Array.from({ length: 100 }, openIdle))));
  const head = 'POST /sales/1/orders HTTP/1.1\r\nHost: test\r\n';
  const answers = [
    sendPart(head),
    sendPart(`${head}Content-Type: application/json\r\nContent-Length: 20\r\n\r\n{`),
  ];
  for (const user of users(POLITE)) expect((await buy(service.url, sale.id, user)).status).toBeLessThan(300);
  await Promise.all(idle.map(({ closed }) => closed));
  expect(await Promise.all(answers)).toEqual(Array(2).fill('HTTP/1.1 408 Request Timeout'));
});

it('closes connections whose clients do not read, and serves others', async () => {
  await stores.sql.query(
    `INSERT INTO sales (name, stock, price_cents) SELECT 'many', 1, 1 FROM generate_series(1, 1000)`,
  );
  const sockets = await Promise.all(Array.from({ length: 3 }, () => open()));
  const request = 'GET /sales?limit=1000 HTTP/1.1\r\nHost: test\r\n\r\n';
  for (const socket of sockets) socket.pause().write(request.repeat(100));
  const closed = async () => {
    const { text } = (await call(`${service.url}/metrics`)).body;
    return Number(/_requests_total\{reason="unread-responses"\} (\d+)/.exec(String(text))?.[1] ?? 0);
  };
  await expect.poll(closed, { timeout: 170_000 }).toBe(sockets.length);
  for (const socket of sockets) socket.destroy();
});

it.runIf(process.platform === 'linux')(
  'leaves descriptors to the stores when clients take all others',
  async () => {
    const descriptors = limits.reservedDescriptors + 20;
    const few = await spawnService(envOf(stores), { prepare: `ulimit -n ${descriptors}` });
    try {
      const made = () => createSale(few.url, 1).catch(() => null);
      const sale = (await eventually(made, (one) => one !== null))!;
      const sockets = await Promise.all(Array.from({ length: descriptors }, () => open(few.url)));
      const left = () => sockets.filter((socket) => !socket.resume().destroyed).length;
      await expect.poll(left).toBeLessThanOrEqual(descriptors - limits.reservedDescriptors);
      expect(left()).toBeGreaterThan(0); // they were not closed for silence, which would close all
      for (const socket of sockets) socket.destroy();
      expect((await buy(few.url, sale.id, 'ann')).status).toBeLessThan(300);
      expect((await call(`${few.url}/readyz`)).status).toBe(200);
    } finally {
      await few.kill();
    }
  },
);
