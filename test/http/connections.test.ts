/** What one connection can cost the service: it may pipeline, and it may never read. */
import { readdirSync } from 'node:fs';
import { connect } from 'node:net';
import { expect, it } from 'vitest';
import { limits } from '../../src/config/limits.ts';
import { call, createSale } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const service = opened(() => startService(envOf(stores)));

const openFiles = () => readdirSync('/proc/self/fd').length;
const port = () => Number(new URL(service.url).port);

const get = (path: string) => `GET ${path} HTTP/1.1\r\nHost: test\r\n\r\n`;
const purchase = (saleId: number, userId: string) => {
  const body = JSON.stringify({ userId });
  return (
    `POST /sales/${saleId}/orders HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n` +
    `Content-Length: ${body.length}\r\n\r\n${body}`
  );
};

/** Addresses of the files that the API page loads, by name. */
async function filesOfDocs(): Promise<Record<string, string>> {
  const page = String((await call(`${service.url}/docs`)).body.text);
  const found = [...page.matchAll(/"(\/assets\/[^/]+\/([^"]+))"/g)];
  return Object.fromEntries(found.map(([, address, name]) => [name, address]));
}

/** Sends requests at once. @returns how many answers come before the connection ends or all are there */
function pipelined(requests: readonly string[]): Promise<{ answers: number; closed: boolean }> {
  return new Promise((resolve) => {
    let text = '';
    const answers = () => text.split('HTTP/1.1 ').length - 1;
    const socket = connect(port(), '127.0.0.1', () => socket.write(requests.join('')));
    socket.on('error', () => {});
    socket.on('close', () => resolve({ answers: answers(), closed: true }));
    socket.on('data', (chunk) => {
      text += chunk.toString('latin1');
      if (answers() < requests.length) return;
      resolve({ answers: answers(), closed: false });
      socket.destroy();
    });
  });
}

it.runIf(process.platform === 'linux').each(['docs.js', '/healthz'])(
  '6,000 requests for %s on a connection that is never read: no files stay open, others are answered',
  async (asked) => {
    const path = (await filesOfDocs())[asked] ?? asked;
    const before = openFiles();
    const socket = connect(port(), '127.0.0.1');
    socket.on('error', () => {});
    socket.pause();
    socket.write(get(path).repeat(6_000));
    // These are answered after the bytes of the other connection have been read.
    for (let i = 0; i < 20; i++) {
      expect((await call(`${service.url}/healthz`)).status).toBe(200);
      expect(openFiles()).toBeLessThan(before + 20);
    }
    socket.destroy();
  },
);

it.each([
  ['as many as are allowed are answered', '/docs', 0],
  ['one too many closes the connection', '/sales', 1],
  ['one too many closes the connection on the hot route', null, 1],
])('requests on one connection: %s', async (_name, path, more) => {
  const sale = await createSale(service.url, 1_000);
  const requests = Array.from({ length: limits.requestsPerConnection + more }, (_, i) =>
    path === null ? purchase(sale.id, `user-${i}`) : get(path),
  );
  const { answers, closed } = await pipelined(requests);
  expect(closed).toBe(more > 0);
  if (more === 0) expect(answers).toBe(requests.length);
});
