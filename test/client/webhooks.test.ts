/** Signatures of `@stampede/client`, against the library of Standard Webhooks; those of real events are in test/tasks/events.test.ts. */
import { Webhook } from 'standardwebhooks';
import { expect, it } from 'vitest';
import { type ReceivedHeaders, signWebhook, verifyWebhook } from '../../src/client/index.ts';

const secretOf = (letter: string) => `whsec_${Buffer.alloc(32, letter).toString('base64')}`;
const [first, second, other] = ['f', 's', 'o'].map(secretOf) as [string, string, string];
const body = JSON.stringify({ name: 'Zoë', amount: 1 });
const now = () => Math.floor(Date.now() / 1_000);

it('the library verifies what it signs, and it verifies what the library signs', async () => {
  const signed = await signWebhook(first, 'm-1', body);
  expect(new Webhook(first).verify(body, { ...signed })).toEqual(JSON.parse(body));
  const at = new Date();
  const headers = {
    'webhook-id': 'm-2',
    'webhook-timestamp': String(Math.floor(at.getTime() / 1_000)),
    'webhook-signature': new Webhook(first).sign('m-2', at, body),
  };
  const verified = { kind: 'verified', id: 'm-2', body: JSON.parse(body) };
  for (const given of [body, Buffer.from(body), new Uint8Array(Buffer.from(body))])
    for (const received of [headers, new Headers(headers)] satisfies ReceivedHeaders[])
      expect(await verifyWebhook(first, received, given)).toEqual(verified);
  // The example of the specification 1.0.
  const published = await signWebhook(
    'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
    'msg_p5jXN8AQM9LWM0D4loKWxJek',
    '{"test": 2432232314}',
    1_614_265_330,
  );
  expect(published['webhook-signature']).toBe('v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=');
});

it('one secret of several, or one signature of several, is enough', async () => {
  const signed = await signWebhook(first, 'm-1', body);
  expect(await verifyWebhook([second, first], signed, body)).toMatchObject({ kind: 'verified' });
  expect(await verifyWebhook([second, other], signed, body)).toEqual({
    kind: 'refused',
    reason: 'bad-signature',
  });
  const { 'webhook-signature': another } = await signWebhook(other, 'm-1', body);
  const both = { ...signed, 'webhook-signature': `v1a,abc ${another} ${signed['webhook-signature']}` };
  expect(await verifyWebhook(first, both, body)).toMatchObject({ kind: 'verified' });
});

it('refuses another body, id or time, a stale signature, and headers that lack a part', async () => {
  const signed = await signWebhook(first, 'm-1', body);
  const reasonOf = async (headers: ReceivedHeaders, given = body, toleranceS?: number) => {
    const result = await verifyWebhook(first, headers, given, toleranceS);
    return result.kind === 'refused' ? result.reason : result.kind;
  };
  expect(await reasonOf(signed, body.replace('1', '2'))).toBe('bad-signature');
  expect(await reasonOf({ ...signed, 'webhook-id': 'm-2' })).toBe('bad-signature');
  expect(await reasonOf({ ...signed, 'webhook-timestamp': String(now() - 100) })).toBe('bad-signature');
  for (const signature of [
    'v1,',
    'v1,AAAA',
    `v1,${'A'.repeat(43)}=`,
    signed['webhook-signature'].replace('v1', 'v2'),
  ])
    expect(await reasonOf({ ...signed, 'webhook-signature': signature })).toBe('bad-signature');
  for (const timestamp of [now() - 310, now() + 310])
    expect(await reasonOf(await signWebhook(first, 'm-1', body, timestamp))).toBe('stale');
  const old = await signWebhook(first, 'm-1', body, now() - 310);
  expect(await reasonOf(old, body, 600)).toBe('verified');
  for (const name of Object.keys(signed))
    for (const missing of ['', undefined])
      expect(await reasonOf({ ...signed, [name]: missing })).toBe('headers-missing');
  expect(await reasonOf({ ...signed, 'webhook-timestamp': '1e3' })).toBe('headers-missing');
  expect(await reasonOf({})).toBe('headers-missing');
});

it('a secret that is none is a TypeError', async () => {
  for (const secret of ['', 'whsec_', 'secret', 'whsec_!', 'whsec_A', first.slice(6)])
    await expect(signWebhook(secret, 'm', body), secret).rejects.toBeInstanceOf(TypeError);
  await expect(verifyWebhook([first, ''], {}, body)).rejects.toBeInstanceOf(TypeError);
});
