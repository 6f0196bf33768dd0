/**
 * A payment provider and a carrier, in memory: as much of them as the shop needs. Real ones are the same in what matters: a request with an
 * Idempotency-Key is done once, and a webhook is signed, and repeated until it is answered with 2xx.
 *
 *   POST /payments {orderId, amountCents}     → {id, url}: where the customer pays
 *   POST /payments/{id}/pay                   the customer pays: the webhook payment.succeeded
 *   POST /refunds {paymentId, amountCents}    POST /parcels {orderId}
 *   GET  /                                    everything
 */
import { randomUUID } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { signWebhook } from '../../src/client/index.ts';

interface Made {
  readonly id: string;
  readonly [member: string]: unknown;
}
type Kind = 'payments' | 'refunds' | 'parcels';

export interface Provider {
  readonly url: string;
  /** What was made, by its kind and then by Idempotency-Key. */
  readonly made: Readonly<Record<Kind, ReadonlyMap<string, Made>>>;
  /** Ids of the payments that customers made. */
  readonly paid: ReadonlySet<string>;
  close(): void;
}

/** @param shopUrl receives the webhooks @param secret signs them @param port 0: a free one */
export async function openProvider(shopUrl: string, secret: string, port = 0): Promise<Provider> {
  const made = { payments: new Map(), refunds: new Map(), parcels: new Map() } as Record<
    Kind,
    Map<string, Made>
  >;
  const paid = new Set<string>();
  const closed = new AbortController();

  /** Sends the webhook until it is answered. Its time is signed again for each try. */
  async function notify(payment: Made): Promise<void> {
    const body = JSON.stringify({ type: 'payment.succeeded', data: payment });
    while (!closed.signal.aborted) {
      const headers = {
        'content-type': 'application/json',
        ...(await signWebhook(secret, payment.id, body)),
      };
      const answer = await fetch(shopUrl, { method: 'POST', headers, body }).catch(() => null);
      if (answer?.ok) return;
      await sleep(500);
    }
  }

  async function answer(path: string, key: string, text: string): Promise<[status: number, body: unknown]> {
    if (path === '/') return [200, { paid: [...paid], ...mapped(made) }];
    const [, kind = '', id, act] = path.split('/');
    if (kind === 'payments' && id !== undefined && act === 'pay') {
      const payment = [...made.payments.values()].find((one) => one.id === id);
      if (payment === undefined) return [404, {}];
      if (!paid.has(id)) void notify(payment);
      paid.add(id);
      return [200, payment];
    }
    if (!Object.hasOwn(made, kind) || key === '') return [404, {}];
    const of = made[kind as Kind];
    const given = JSON.parse(text);
    if (kind === 'refunds' && !paid.has(given.paymentId)) return [404, {}];
    const one = of.get(key) ?? { ...given, id: `${kind.slice(0, -1)}_${randomUUID()}` };
    of.set(key, one);
    return [200, { ...one, url: `${urlOf(server)}/${kind}/${one.id}/pay` }];
  }

  const server = createServer(async (request, response) => {
    let text = '';
    for await (const chunk of request) text += chunk;
    const [status, body] = await answer(
      request.url ?? '',
      String(request.headers['idempotency-key'] ?? ''),
      text,
    );
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  });
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const close = () => {
    closed.abort();
    server.close();
    server.closeAllConnections();
  };
  return { url: urlOf(server), made, paid, close };
}

const urlOf = (server: Server) => `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
const mapped = (made: Readonly<Record<Kind, ReadonlyMap<string, Made>>>) =>
  Object.fromEntries(Object.entries(made).map(([kind, of]) => [kind, [...of.values()]]));

if (process.argv[1]?.endsWith('provider.ts')) {
  const { SHOP_URL = 'http://127.0.0.1:4000', PROVIDER_SECRET = '', PORT = '4001' } = process.env;
  const { url } = await openProvider(`${SHOP_URL}/webhooks/provider`, PROVIDER_SECRET, Number(PORT));
  console.log(`the provider listens on ${url}`);
}
