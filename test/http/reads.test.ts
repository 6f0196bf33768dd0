/** A flood of reads while Postgres hangs: further reads are refused, and what does not need their connections is served. */
import { randomUUID } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { expect, it } from 'vitest';
import { call, createSale, eventually } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

/** Connections with a request on each: more than are served and queued. */
const CLIENTS = 300;

const stores = opened(openTestStores);
const service = opened(() => startService(envOf(stores)));

it('is refused by every method, and leaves pages, their scripts, the console and tasks', async () => {
  const { id } = await createSale(service.url, 1);
  const script = /\/assets\/[^"]+\/console\.js/.exec(
    String((await call(`${service.url}/console`)).body.text),
  )![0];
  const order = () => `/orders/${randomUUID()}`;
  const read = () => call(service.url + order());
  /** Sends the next request for each answer. */
  const readOn = () => {
    const socket = connect(Number(new URL(service.url).port), '127.0.0.1').on('error', () => {});
    const ask = () => socket.write(`GET ${order()} HTTP/1.1\r\nHost: test\r\n\r\n`);
    socket.on('data', ask);
    ask();
    return socket;
  };
  const flood: Socket[] = [];
  const client = await stores.sql.connect();
  try {
    await client.query('BEGIN; LOCK TABLE orders');
    flood.push(...Array.from({ length: CLIENTS }, readOn));
    const isRefused = async () => (await read()).body.reason === 'reads-overloaded';
    await eventually(isRefused, Boolean);
    // Waiting reads give up at the same time: the queue has room for a moment.
    const refused = (path: string, init: RequestInit = {}) =>
      eventually(
        async () => {
          const response = await fetch(service.url + path, init);
          return { status: response.status, text: await response.text() };
        },
        ({ status }) => status === 503,
      );
    await refused('/orders/x', { method: 'HEAD' }); // before its id is validated
    for (const path of ['/', `/shop/${id}`]) expect((await refused(path)).text).toContain('The shop is busy');
    for (const path of ['/console', script, '/tasks']) {
      await eventually(isRefused, Boolean);
      expect((await call(service.url + path)).status, path).toBe(200);
    }
  } finally {
    for (const socket of flood) socket.destroy();
    client.release(true);
  }
});
