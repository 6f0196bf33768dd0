/**
 * Standard Webhooks 1.0 (https://www.standardwebhooks.com) by Web Crypto: what Stampede signs its tasks and events with, and how it
 * accepts a payment notification.
 *
 *   webhook-id, webhook-timestamp, webhook-signature: v1,base64(HMAC-SHA256(secret, id "." timestamp "." body as it was sent))
 */
import type { Order, Sale } from './types.ts';

type WebhookHeaders = Readonly<Record<'webhook-id' | 'webhook-timestamp' | 'webhook-signature', string>>;

/** The headers of a request: those of `fetch`, or of Node's IncomingMessage. */
export type ReceivedHeaders =
  | { get(name: string): string | null }
  | { readonly [name: string]: string | readonly string[] | undefined };

/** `id` is the same in each delivery of the message. */
type Message<T extends string, D> = Readonly<{ id: string; type: T; timestamp: string; data: D }>;
type OrderData = Pick<Order, 'orderId' | 'saleId' | 'userId' | 'status' | 'quantity' | 'amountCents'>;
type StockData = Pick<Sale, 'stock' | 'sold' | 'remaining' | 'paused'> & { readonly saleId: number };
type UnitsData = StockData & { readonly units: number; readonly waitlist: readonly string[] };

/** What EVENT_WEBHOOK_URL receives. */
export type StampedeEvent =
  | Message<`order.${'placed' | 'paid' | 'cancelled' | 'expired' | 'refund-due'}`, OrderData>
  | Message<'order.extended' | 'order.offered', OrderData & { readonly expiresAt: string }>
  | Message<'order.transferred', OrderData & { readonly fromUserId: string }>
  | Message<'sale.sold-out', StockData>
  | Message<'sale.units-returned', UnitsData>;

/** What TASK_WEBHOOK_URL receives. `key` identifies the task: a repeat has the same one. */
export type StampedeTask = Readonly<{ id: number; kind: string; key: string; payload: unknown }>;

/** `stale`: signed more than the tolerance ago, or ahead. */
export type Verified<T> =
  | { readonly kind: 'verified'; readonly id: string; readonly body: T }
  | { readonly kind: 'refused'; readonly reason: 'headers-missing' | 'stale' | 'bad-signature' };

const nowS = () => Math.floor(Date.now() / 1_000);

const NO_BASE64 = '-';

function decoded(base64: string): string {
  try {
    return atob(base64);
  } catch {
    throw new TypeError('a secret of Standard Webhooks is whsec_ and base64');
  }
}

/** @param secret `whsec_…`, also with a provider's name in front, as PAYMENT_WEBHOOK_SECRETS has it @throws TypeError for another */
async function keyOf(secret: string) {
  const [, base64 = NO_BASE64] = /^(?:[a-z0-9-]+:)?whsec_([A-Za-z0-9+/]+={0,2})$/.exec(secret) ?? [];
  const raw = Uint8Array.from(decoded(base64), (one) => one.charCodeAt(0));
  return crypto.subtle.importKey('raw', raw, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign', 'verify']);
}

function signedBytes(id: string, timestamp: string, body: string | Uint8Array): Uint8Array<ArrayBuffer> {
  const encoder = new TextEncoder();
  const head = encoder.encode(`${id}.${timestamp}.`);
  const rest = typeof body === 'string' ? encoder.encode(body) : body;
  const bytes = new Uint8Array(head.length + rest.length);
  bytes.set(head);
  bytes.set(rest, head.length);
  return bytes;
}

/**
 * Signs a body, which must be sent exactly as it is given.
 * @param id of the message; the same when it is sent again @param timestampS by default now; it is refused after 5 minutes
 * @throws TypeError for a secret that is none
 */
export async function signWebhook(
  secret: string,
  id: string,
  body: string,
  timestampS = nowS(),
): Promise<WebhookHeaders> {
  const timestamp = String(timestampS);
  const key = await keyOf(secret);
  const signature = new Uint8Array(await crypto.subtle.sign('HMAC', key, signedBytes(id, timestamp, body)));
  const base64 = btoa(String.fromCharCode(...signature));
  return { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': `v1,${base64}` };
}

/**
 * Verifies what Stampede has sent, in constant time. The same message may arrive again: remember its id.
 * @param secrets newest first: any of them may have signed it @param body as it was received, before anything has parsed it
 * @param toleranceS how far the time of the signature may be away
 * @throws TypeError for a secret that is none; SyntaxError when the body is signed and not JSON
 */
export async function verifyWebhook<T = StampedeEvent>(
  secrets: string | readonly string[],
  headers: ReceivedHeaders,
  body: string | Uint8Array,
  toleranceS = 300,
): Promise<Verified<T>> {
  const keys = await Promise.all([secrets].flat().map(keyOf));
  const header = (name: string) =>
    String((typeof headers.get === 'function' ? headers.get(name) : (headers as never)[name]) ?? '');
  const [id, timestamp] = [header('webhook-id'), header('webhook-timestamp')];
  const signatures = header('webhook-signature');
  if (id === '' || signatures === '' || !/^\d{1,15}$/.test(timestamp))
    return { kind: 'refused', reason: 'headers-missing' };
  if (Math.abs(nowS() - Number(timestamp)) > toleranceS) return { kind: 'refused', reason: 'stale' };
  const bytes = signedBytes(id, timestamp, body);
  for (const [, base64] of signatures.matchAll(/(?:^| )v1,([A-Za-z0-9+/]{43}=)(?= |$)/g)) {
    const signature = Uint8Array.from(atob(base64!), (one) => one.charCodeAt(0));
    for (const key of keys)
      if (await crypto.subtle.verify('HMAC', key, signature, bytes)) {
        const text = typeof body === 'string' ? body : new TextDecoder().decode(body);
        return { kind: 'verified', id, body: JSON.parse(text) };
      }
  }
  return { kind: 'refused', reason: 'bad-signature' };
}
