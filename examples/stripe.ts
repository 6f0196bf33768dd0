/** Receives Stripe's webhooks and reports payments to Stampede: docs/how-to/integrate.md explains it. */
import { createHmac, timingSafeEqual } from 'node:crypto';
import { GaveUpError, Stampede } from '../src/client/index.ts'; // yours: '@stampede/client'

const { STRIPE_SECRET = '', STAMPEDE_URL = '', PAYMENT_SECRET = '' } = process.env;
if (STRIPE_SECRET === '') throw new Error('STRIPE_SECRET is missing'); // anyone can sign with an empty key
const stampede = new Stampede({ url: STAMPEDE_URL, paymentSecret: PAYMENT_SECRET, withinMs: 8_000 });

/** HMAC-SHA256 of the time, a dot and the body; the key is the text of the secret. A rotation has several v1. */
function isStripes(body: Buffer, header: string): boolean {
  const parts = header.split(',').map((part) => part.split('='));
  const time = parts.find(([name]) => name === 't')?.[1] ?? '';
  const expected = createHmac('sha256', STRIPE_SECRET).update(`${time}.`).update(body).digest();
  const isGenuine = parts.some(([name, hex = '']) => {
    const given = Buffer.from(hex, 'hex');
    return name === 'v1' && given.length === expected.length && timingSafeEqual(given, expected);
  });
  return isGenuine && Math.abs(Date.now() / 1_000 - Number(time)) <= 300;
}

/** @param body as it was received @returns the status for Stripe, which repeats what is not 2xx */
export async function receive(body: Buffer, header: string): Promise<number> {
  if (!isStripes(body, header)) return 400;
  const { type, data } = JSON.parse(body.toString());
  const { id, amount_received: amountCents, metadata } = data.object;
  if (type !== 'payment_intent.succeeded' || metadata?.orderId === undefined) return 204;
  const payment = { notificationId: id, orderId: metadata.orderId, amountCents };
  try {
    const answer = await stampede.reportPayment(payment);
    if (answer.kind === 'done') return 200;
    console.error(payment, answer);
    // A repeat of these would change nothing. An invalid request is a payment of another shop: its orderId is none of Stampede's.
    return answer.kind === 'unmatched' || answer.kind === 'invalid-request' ? 200 : 500;
  } catch (error) {
    if (!(error instanceof GaveUpError)) throw error;
    console.error(error);
    return 503;
  }
}
