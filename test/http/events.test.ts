/** Server-sent events: one read for all listeners, the latest frame for slow ones, bounds, and the end. */
import { once } from 'node:events';
import { createServer, get, type IncomingMessage, type Server } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Response } from 'express';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Broadcast } from '../../src/http/broadcast.ts';
import { attempt, call, createSale, eventually, post } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

/** A stream and the events that came so far. */
async function listenTo(url: string, client = '192.0.2.1') {
  const request = get(url, { headers: { 'x-forwarded-for': client } });
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  const events: Record<string, unknown>[] = [];
  let text = '';
  response.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
    const frames = text.split('\n\n');
    text = frames.pop()!;
    for (const frame of frames) if (frame.startsWith('data: ')) events.push(JSON.parse(frame.slice(6)));
  });
  response.on('error', () => {});
  const ended = new Promise((resolve) => response.on('close', () => resolve(response.complete)));
  return { status: response.statusCode, events, ended, close: () => request.destroy() };
}

describe('a broadcast', () => {
  let server: Server;
  let broadcast: Broadcast<string>;
  const values = new Map<string, object>([['a', { n: 0 }]]);
  const reads: (readonly string[])[] = [];
  let failure: Error | null = null;
  const storeNow = () => performance.now() + 1e9;
  const errors: unknown[] = [];
  const url = () => `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  beforeAll(async () => {
    broadcast = new Broadcast<string>({
      everyMs: 10,
      async read(topics) {
        reads.push(topics);
        if (failure !== null) throw failure;
        return { values, nowMs: storeNow() };
      },
      onError: (error) => errors.push(error),
    });
    server = createServer(async (req, res) => {
      if (!(await broadcast.listen(req.url!.slice(1), res as Response))) res.writeHead(404).end();
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  });
  afterAll(() => {
    broadcast.close();
    server.close();
  });

  it('reads once for all listeners, sends what changed, and stops with the last of them', async () => {
    const before = reads.length;
    const all = await Promise.all(Array.from({ length: 20 }, () => listenTo(`${url()}/a`)));
    await expect.poll(() => all.every(({ events }) => events.length > 0)).toBe(true);
    values.set('a', { n: 1 });
    await expect.poll(() => all.every(({ events }) => events.length === 2)).toBe(true);
    expect(all[7]!.events).toEqual([0, 1].map((n) => ({ now: expect.any(Number), n })));
    for (const topics of reads.slice(before)) expect(topics).toEqual(['a']);
    for (const { close } of all) close();
    await expect.poll(() => broadcast.size).toBe(0);
    await eventually(
      async () => [reads.length, await sleep(50), reads.length],
      ([first, , last]) => first === last,
    );
  });

  it('keeps streams open while the source fails', async () => {
    const one = await listenTo(`${url()}/a`);
    failure = new Error('down');
    await expect.poll(() => errors.length).toBeGreaterThan(2);
    failure = null;
    values.set('a', { n: 2 });
    await expect.poll(() => one.events.at(-1)!.n).toBe(2);
    one.close();
  });

  it('keeps at most one frame for a client that does not read, which then gets the latest', async () => {
    const requested = once(server, 'request');
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    socket.write('GET /a HTTP/1.1\r\nHost: test\r\n\r\n');
    let received = '';
    socket.once('data', () => socket.pause());
    await once(socket, 'data');
    const [, response] = (await requested) as [IncomingMessage, Response];
    // Frames that fit into the system's buffers are sent.
    const large = 'x'.repeat(500_000);
    for (let n = 10; n < 60; n++) {
      values.set('a', { n, large });
      const seen = reads.length;
      while (reads.length < seen + 2) await sleep(5);
    }
    expect(response.writableLength).toBeGreaterThan(0);
    expect(response.writableLength).toBeLessThan(1_100_000);
    socket.setEncoding('utf8').on('data', (chunk) => {
      received += chunk;
    });
    socket.resume();
    await expect.poll(() => received.includes('"n":59,')).toBe(true);
    expect(received).not.toContain('"n":40,');
    socket.destroy();
    values.set('a', { n: 3 });
  });
});

describe('the events of a sale', () => {
  const stores = opened(openTestStores);
  const service = opened(() =>
    startService({ ...envOf(stores), ADDRESS_CONNECTIONS: '3', TRUSTED_PROXIES: '127.0.0.1' }),
  );
  const urlOf = (saleId: number) => `${service.url}/sales/${saleId}/events`;

  it('say what is left, its state, and the clock that decides', async () => {
    const { id } = await createSale(service.url, 2);
    const { events, close } = await listenTo(urlOf(id));
    await expect.poll(() => events[0]).toBeDefined();
    const [first] = events;
    expect(first).toEqual({
      ...{ now: expect.any(Number), state: 'open', stock: 2, sold: 0, remaining: 2 },
      ...{ startsAt: null, endsAt: null, paused: false, maxPerOrder: 1 },
      ...{ name: 'test', priceCents: 500, currency: 'USD' },
    });
    expect(Math.abs((first!.now as number) - Date.now())).toBeLessThan(60_000);
    await attempt(service.url, id, 'ann');
    await expect.poll(() => events.at(-1)!.remaining).toBe(1);
    await attempt(service.url, id, 'ben');
    await expect.poll(() => events.at(-1)!.state).toBe('sold-out');
    await post(`${service.url}/sales/${id}/restock`, { units: 1 });
    await expect.poll(() => events.at(-1)!.state).toBe('open');
    close();
  });

  it('are refused for an address at its limit', async () => {
    const { id } = await createSale(service.url, 1);
    const held = await Promise.all([1, 2, 3].map(() => listenTo(urlOf(id), '192.0.2.9')));
    const headers = { 'x-forwarded-for': '192.0.2.9' };
    const refused = await call(urlOf(id), { headers });
    expect(refused).toMatchObject({ problem: 'too-many-requests', body: { reason: 'too-many-streams' } });
    expect(refused.headers.get('retry-after')).toBe('4');
    const other = await listenTo(urlOf(id), '192.0.2.8');
    expect(other.status).toBe(200);
    for (const { close } of [...held, other]) close();
    const again = await eventually(
      () => listenTo(urlOf(id), '192.0.2.9'),
      ({ status }) => status === 200,
    );
    again.close();
  });

  it('end at once when the service stops', async () => {
    const { id } = await createSale(service.url, 1);
    const all = await Promise.all([1, 2].map(() => listenTo(urlOf(id))));
    const stopped = service.stop();
    expect(await Promise.all(all.map(({ ended }) => ended))).toEqual([true, true]);
    await stopped;
  });
});
