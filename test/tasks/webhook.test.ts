/** The webhook handler against a real server that accepts, rejects, redirects, or does not answer. */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Webhook } from 'standardwebhooks';
import { afterEach, describe, expect, it } from 'vitest';
import { webhook } from '../../src/tasks/handlers.ts';

interface Outside {
  readonly url: string;
  readonly requests: { readonly headers: IncomingMessage['headers']; readonly body: string }[];
  close(): Promise<void>;
}

const open: Outside[] = [];
afterEach(async () => {
  await Promise.all(open.splice(0).map((outside) => outside.close()));
});

async function listen(answer: (res: ServerResponse, req: IncomingMessage) => void): Promise<Outside> {
  const requests: Outside['requests'] = [];
  const server = createServer(async (req, res) => {
    let body = '';
    for await (const chunk of req) body += chunk;
    requests.push({ headers: req.headers, body });
    answer(res, req);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const outside = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/tasks?from=stampede`,
    requests,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
  open.push(outside);
  return outside;
}

const task = {
  id: 7,
  kind: 'ship',
  idempotencyKey: 'ship:42',
  payload: { orderId: '42', saleId: 1, userId: 'ann' },
  attempts: 3,
};
const never = new AbortController().signal;
const deliver = (url: string, signal = never, secret: string | null = null) =>
  webhook(url, secret)(task, signal);

describe('the webhook', () => {
  it.each([200, 201, 202, 204])('%d: delivered, with its idempotency key', async (status) => {
    const outside = await listen((res) => res.writeHead(status).end());
    await deliver(outside.url);
    expect(outside.requests).toHaveLength(1);
    const { headers, body } = outside.requests[0]!;
    expect(headers).toMatchObject({ 'content-type': 'application/json', 'idempotency-key': 'ship:42' });
    expect(headers.authorization).toBeUndefined();
    expect(JSON.parse(body)).toEqual({ id: 7, kind: 'ship', key: 'ship:42', payload: task.payload });
    await webhook(outside.url, null)({ ...task, attempts: 4 }, never);
    expect(outside.requests[1]!.body).toBe(body);
  });

  it('signs each attempt with the same id, and the time of the attempt', async () => {
    const secret = `whsec_${Buffer.alloc(32, 's').toString('base64')}`;
    const outside = await listen((res) => res.writeHead(204).end());
    await deliver(outside.url, never, secret);
    const { headers, body } = outside.requests[0]!;
    const given = headers as Record<string, string>;
    expect(given['webhook-id']).toBe('ship:42');
    expect(new Webhook(secret).verify(body, given)).toEqual(JSON.parse(body));
    const foreign = new Webhook(Buffer.alloc(32, 'f').toString('base64'));
    expect(() => foreign.verify(body, given)).toThrow('No matching signature');
  });

  it.each([400, 404, 409, 429, 500, 503])('%d: a failed attempt', async (status) => {
    const outside = await listen((res) => res.writeHead(status).end('why'));
    await expect(deliver(outside.url)).rejects.toThrow(`the webhook answered ${status}`);
  });

  it.each([301, 302, 307, 308])('%d: a failed attempt; the redirect is not followed', async (status) => {
    const elsewhere = await listen((res) => res.end());
    const outside = await listen((res) => res.writeHead(status, { location: elsewhere.url }).end());
    await expect(deliver(outside.url)).rejects.toThrow(`the webhook answered ${status}`);
    expect(elsewhere.requests).toHaveLength(0);
  });

  it('no response: ends with its signal', async () => {
    const deadline = new AbortController();
    const outside = await listen(() => deadline.abort(new Error('the time is over')));
    await expect(deliver(outside.url, deadline.signal)).rejects.toThrow('the time is over');
    expect(outside.requests).toHaveLength(1);
  });

  it('an endless response: its status counts, and its body is not read', async () => {
    const outside = await listen((res) => {
      res.writeHead(200);
      const writing = setInterval(() => res.write('x'.repeat(1_000)), 1);
      res.on('close', () => clearInterval(writing));
    });
    await deliver(outside.url);
  });

  it('an unreachable receiver is named', async () => {
    const outside = await listen((res) => res.end());
    await outside.close();
    open.length = 0;
    const failure = await deliver(outside.url).catch((error: Error) => error);
    expect(failure).toMatchObject({ message: 'fetch failed', cause: { code: 'ECONNREFUSED' } });
  });

  it('user and password in the URL become Basic authorization, and are in no error', async () => {
    const outside = await listen((res) => res.writeHead(500).end());
    const url = new URL(outside.url);
    url.username = 'ann@home';
    url.password = 'a:b/c%';
    const failure = await deliver(url.href).catch((error: Error) => error);
    expect(outside.requests[0]!.headers.authorization).toBe(
      `Basic ${Buffer.from('ann@home:a:b/c%').toString('base64')}`,
    );
    expect(JSON.stringify([failure, String(failure)])).not.toMatch(/a:b|a%3Ab/);
  });
});
