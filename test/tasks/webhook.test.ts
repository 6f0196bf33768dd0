/** The webhook handler against a real server that accepts, rejects, redirects, or does not answer. */

import type { IncomingMessage, ServerResponse } from 'node:http';
import { Webhook } from 'standardwebhooks';
import { beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { type StampedeTask, verifyWebhook } from '../../src/client/index.ts';
import { webhook } from '../../src/tasks/handlers.ts';
import { opened } from '../support/opened.ts';
import { openReceiver } from '../support/receiver.ts';

let requests: { readonly headers: IncomingMessage['headers']; readonly body: string }[] = [];
let answer: (res: ServerResponse) => void = (res) => res.writeHead(204).end();
const receiver = opened(() =>
  openReceiver(async (req, res) => {
    let body = '';
    for await (const chunk of req) body += chunk;
    requests.push({ headers: req.headers, body });
    answer(res);
  }),
);
let url: string;
beforeAll(() => {
  url = `${receiver.url}/tasks?from=stampede`;
});
beforeEach(() => {
  requests = [];
});

const task = {
  id: 7,
  kind: 'ship',
  idempotencyKey: 'ship:42',
  payload: { orderId: '42', saleId: 1, userId: 'ann' },
  attempts: 3,
};
const never = new AbortController().signal;
const deliver = (to = url, signal = never, secret: string | null = null) => webhook(to, secret)(task, signal);

describe('the webhook', () => {
  it.each([200, 204])('%d: delivered, with its idempotency key', async (status) => {
    answer = (res) => res.writeHead(status).end();
    await deliver();
    expect(requests).toHaveLength(1);
    const { headers, body } = requests[0]!;
    expect(headers).toMatchObject({ 'content-type': 'application/json', 'idempotency-key': 'ship:42' });
    expect(headers.authorization).toBeUndefined();
    expect(JSON.parse(body)).toEqual({ id: 7, kind: 'ship', key: 'ship:42', payload: task.payload });
    await webhook(url, null)({ ...task, attempts: 4 }, never);
    expect(requests[1]!.body).toBe(body);
  });

  it('signs each attempt with the id of its task', async () => {
    const secret = `whsec_${Buffer.alloc(32, 's').toString('base64')}`;
    await deliver(url, never, secret);
    const given = requests[0]!.headers as Record<string, string>;
    const { body } = requests[0]!;
    expect(given['webhook-id']).toBe('ship:42');
    expect(new Webhook(secret).verify(body, given)).toEqual(JSON.parse(body));
    const verified = await verifyWebhook<StampedeTask>(secret, given, body);
    if (verified.kind === 'refused') throw new Error(verified.reason);
    const { id, kind, key, payload } = verified.body;
    expect({ id, kind, key, payload }).toEqual(JSON.parse(body));
    const foreign = new Webhook(Buffer.alloc(32, 'f').toString('base64'));
    expect(() => foreign.verify(body, given)).toThrow('No matching signature');
  });

  it.each([301, 307, 400, 409, 503])('%d: a failed attempt, and no redirect is followed', async (status) => {
    answer = (res) => res.writeHead(status, { location: '/elsewhere' }).end('why');
    await expect(deliver()).rejects.toThrow(`the webhook answered ${status}`);
    expect(requests).toHaveLength(1);
  });

  it('no response: ends with its signal', async () => {
    const deadline = new AbortController();
    answer = () => deadline.abort(new Error('the time is over'));
    await expect(deliver(url, deadline.signal)).rejects.toThrow('the time is over');
    expect(requests).toHaveLength(1);
  });

  it('an endless response: its status counts, and its body is not read', async () => {
    answer = (res) => {
      res.writeHead(200);
      const writing = setInterval(() => res.write('x'.repeat(1_000)), 1);
      res.on('close', () => clearInterval(writing));
    };
    await deliver();
  });

  it('user and password in the URL become Basic authorization, and are in no error', async () => {
    answer = (res) => res.writeHead(500).end();
    const to = Object.assign(new URL(url), { username: 'ann@home', password: 'a:b/c%' });
    const failure = await deliver(to.href).catch((error: Error) => error);
    const encoded = Buffer.from('ann@home:a:b/c%').toString('base64');
    expect(requests[0]!.headers.authorization).toBe(`Basic ${encoded}`);
    expect(JSON.stringify([failure, String(failure)])).not.toMatch(/a:b|a%3Ab/);
  });
});
