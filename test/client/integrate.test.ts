/**
 * docs/how-to/integrate.md, from the page alone: `@stampede/client`, packed and installed in an empty project, and the client in Python
 * buy with the page's commands, and through a service that answers `busy`, 429, `too-early` and `unknown-outcome`, and whose answers get
 * lost: one order each. The receivers of the page verify signatures, and refuse others.
 */
import { spawnSync } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { gzipSync } from 'node:zlib';
import { build } from 'esbuild';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { signWebhook } from '../../src/client/index.ts';
import { buy, call, createSale } from '../support/client.ts';
import { type Front, type FrontStep, openFront } from '../support/front.ts';
import { opened } from '../support/opened.ts';
import { installPackage, testsOfPackage } from '../support/packages.ts';
import { below, commandsOf, root, text } from '../support/samples.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const page = text('docs/how-to/integrate.md');
/** Files of the page, "… `name`:" and the code, and of examples/. */
const FILES = [...page.matchAll(/`([\w.]+)`:\n\n```\w+\n([\s\S]*?)^```$/gm)].map(([, name, code]) => [
  name!,
  code!,
]);
for (const name of ['buy.py', 'stripe.ts'])
  FILES.push([name, text(`examples/${name}`).replace('../src/client/index.ts', '@stampede/client')]);
const PAYMENT_SECRET = `whsec_${Buffer.alloc(32, 'p').toString('base64')}`;

const stores = opened(openTestStores);
const service = opened(() => startService(envOf(stores)));
const signed = opened(() =>
  startService({ ...envOf(stores), PAYMENT_WEBHOOK_SECRETS: `stripe:${PAYMENT_SECRET}` }),
);
const packed = opened(() => installPackage(page));
const fronts: Front[] = [];
afterAll(() => Promise.all(fronts.map((one) => one[Symbol.asyncDispose]())));

async function front(...steps: FrontStep[]): Promise<string> {
  const opened = await openFront(service.url, ...steps);
  fronts.push(opened);
  return opened.url;
}

const TYPESCRIPT = `import { GaveUpError, Stampede } from '@stampede/client';
const [, , url, saleId, userId, withinS, token] = process.argv;
try {
  const stampede = new Stampede({ url, token, withinMs: Number(withinS) * 1_000 });
  const answer = await stampede.placeOrder(Number(saleId), { userId });
  console.log('order' in answer ? answer.order.orderId : answer.kind + ' ' + answer.mayHaveHappened);
} catch (error) {
  console.log(error instanceof GaveUpError ? 'gave-up ' + error.mayHaveHappened : 'thrown ' + error.name);
}
`;
const PYTHON = `import sys
from buy import Refused, buy
service, sale_id, user_id, within_s, *authorization = sys.argv[1:]
try:
    headers = {'Authorization': one for one in authorization}
    print(buy(service, sale_id, {'userId': user_id}, int(within_s), headers)['orderId'])
except Refused as refused:
    print(refused.args[0], str(refused.args[1]).lower())
except TimeoutError as late:
    print('gave-up', str(late.args[0]).lower())
except Exception as error:
    print('thrown', type(error).__name__)
`;

const file = (name: string) => path.join(packed.folder, name);
const named = (text: string) => text.replaceAll('http://127.0.0.1:3000', service.url);

beforeAll(async () => {
  for (const [name, code] of FILES) writeFileSync(file(name!), named(code!));
  writeFileSync(file('caller.mjs'), TYPESCRIPT);
  writeFileSync(file('caller.py'), PYTHON);
  await createSale(service.url, 5); // sale 1, which the page buys from
});

testsOfPackage('client', { '@stampede/client': 'Stampede' }, packed);

it('accepts the types of a program that is strict, and handles every answer', async () => {
  const options = { strict: true, exactOptionalPropertyTypes: true, noEmit: true, module: 'NodeNext' };
  writeFileSync(file('strict.json'), JSON.stringify({ compilerOptions: options, files: ['shop.ts'] }));
  writeFileSync(file('shop.ts'), SHOP);
  const tsc = path.join(root, 'node_modules/.bin/tsc');
  expect(await packed.run(tsc, ['-p', 'strict.json'])).toBe('');
  writeFileSync(file('shop.ts'), SHOP.replace("'sold-out'", "'sold-outs'"));
  await expect(packed.run(tsc, ['-p', 'strict.json'])).rejects.toThrow('shop.ts(');
});

const SHOP = `import { Stampede, verifyWebhook } from '@stampede/client';
const stampede = new Stampede({ url: 'http://127.0.0.1', token: undefined });
export async function buy(saleId: number, userId: string, signal?: AbortSignal): Promise<string | number> {
  const answer = await stampede.placeOrder(saleId, { userId }, { signal });
  switch (answer.kind) {
    case 'accepted': return answer.isDurable ? answer.order.orderId : 'soon';
    case 'replayed': return answer.order.quantity;
    case 'not-enough-units': return answer.remaining;
    case 'sale-not-open': return answer.reason satisfies 'not-started' | 'ended' | 'paused';
    case 'over-limit': return answer.maxPerOrder;
    case 'customer-limit': return answer.left;
    case 'invalid-code': return answer.reason satisfies 'unknown' | 'used-up';
    case 'too-early': return Date.parse(answer.notBefore);
    case 'invalid-request': return answer.errors?.[0]?.path ?? answer.detail;
    case 'sold-out': case 'unknown-sale': case 'invalid-ticket': case 'too-large': return answer.detail;
    case 'unsupported-media-type': case 'too-many-requests': case 'busy': return String(answer.mayHaveHappened);
    default: return answer satisfies never;
  }
}
const sale = await stampede.createSale({ name: 'sale', stock: 1, priceCents: 1 }, { idempotencyKey: 'k' });
if (sale.kind === 'done') await stampede.restockSale(sale.value.id, 1);
const verified = await verifyWebhook('whsec_', new Headers(), '');
if (verified.kind === 'verified' && verified.body.type === 'sale.units-returned') verified.body.data.waitlist satisfies readonly string[];
`;

it('is bundled for a browser without a module of Node, in at most 4 KB', async () => {
  const entry = file('bundle.mjs');
  writeFileSync(entry, "export * from '@stampede/client';");
  const options = { bundle: true, minify: true, format: 'esm', platform: 'browser', write: false } as const;
  const { outputFiles } = await build({ ...options, entryPoints: [entry], target: 'es2022' });
  const code = outputFiles[0]!.contents;
  console.log(`@stampede/client: ${code.length} bytes minified, ${gzipSync(code).length} with gzip`);
  expect(gzipSync(code).length).toBeLessThan(4_096);
});

describe('the commands of the page', () => {
  it.each([
    ['In TypeScript', /^order [\w-]{36}$/],
    ['In Python', /^\{'orderId': '[\w-]{36}', .*'userId': 'ben', 'status': 'pending'/],
    ['Other routes and languages', /200 \{\s+id: 1,[\s\S]*stock: 5,\s+sold: [12],/],
  ])('%s', async (heading, printed) => {
    const commands = named(commandsOf(below(page, heading)).join(''));
    expect(await packed.run('/bin/sh', ['-ec', commands])).toMatch(printed);
  });
});

describe.concurrent.each([
  ['TypeScript', process.execPath, ['caller.mjs']],
  ['Python', 'python3', ['caller.py']],
] as const)('in %s', (name, program, args) => {
  const isMissing = spawnSync(program, ['--version']).status !== 0;
  const buyBy = (url: string, saleId: number, userId: string, withinS: number, ...token: string[]) =>
    packed.run(program, [...args, url, String(saleId), userId, String(withinS), ...token]);

  it.skipIf(isMissing)('buys one order through every answer that asks for a repeat', async () => {
    const { id } = await createSale(service.url, 5);
    const steps = [
      'busy',
      'too-many-requests',
      'lost',
      'cut',
      'proxy',
      'too-early',
      'unknown-outcome',
      'busy',
    ] as const;
    const orderId = await buyBy(await front(...steps), id, 'ann', 600);
    const { body } = await call(`${service.url}/sales/${id}/orders?userId=ann`);
    expect(body).toMatchObject({ orderId, status: 'pending' });
    expect((await call(`${service.url}/sales/${id}`)).body).toMatchObject({ sold: 1 });
  });

  it.skipIf(isMissing)('ends with a refusal at once, and throws a mistake of the program', async () => {
    const { id } = await createSale(service.url, 1);
    await buyBy(service.url, id, `first.of.${name}`, 600);
    expect(await buyBy(await front(), id, 'ben', 600)).toBe('sold-out false');
    expect(await buyBy(await front('lost', 'invalid-ticket'), id, 'dan', 600)).toBe('invalid-ticket true');
    expect(await buyBy('ftp://127.0.0.1', id, 'eve', 600)).toMatch(/^thrown (TypeError|ValueError)$/);
  });
});

it('in Python, ends without an answer when its time is over', async ({ skip }) => {
  skip(spawnSync('python3', ['--version']).status !== 0, 'there is no python3');
  const { id } = await createSale(service.url, 1);
  const buyBy = (url: string, userId: string) =>
    packed.run('python3', ['caller.py', url, String(id), userId, '0']);
  expect(await buyBy(await front('lost', 'lost'), 'eve')).toBe('gave-up true');
  expect(await buyBy(await front('busy'), 'fay')).toBe('gave-up false');
});

it('in Python, a refusal has what the problem has', async ({ skip }) => {
  skip(spawnSync('python3', ['--version']).status !== 0, 'there is no python3');
  const { id } = await createSale(service.url, 1, { maxPerOrder: 3 });
  const order = { userId: 'gus', quantity: 2 };
  const script = `import json, sys
from buy import Refused, buy
try:
    buy(*json.loads(sys.argv[1]))
except Refused as refused:
    print(refused.args[0], refused.args[2]['remaining'])`;
  const args = [service.url, id, order, 60];
  expect(await packed.run('python3', ['-c', script, JSON.stringify(args)])).toBe('not-enough-units 1');
});

/** Calls `receive` of a file of the page with each list of arguments, bodies as `bytes` has them. @returns the statuses */
async function received(
  name: string,
  calls: readonly unknown[][],
  env: NodeJS.ProcessEnv,
): Promise<number[]> {
  const script = `import { receive } from './${name}';
const calls = JSON.parse(process.argv[1]);
const of = (one) => (one.base64 === undefined ? one : Buffer.from(one.base64, 'base64'));
const statuses = [];
for (const args of calls) statuses.push(await receive(...args.map(of)));
console.log(JSON.stringify(statuses));`;
  const tsx = ['--import', import.meta.resolve('tsx'), '--input-type=module', '-e', script];
  const said = await packed.run(process.execPath, [...tsx, JSON.stringify(calls)], env);
  return JSON.parse(said.split('\n').at(-1)!);
}
const bytes = (text: string) => ({ base64: Buffer.from(text).toString('base64') });

describe('the receiver for Stripe', () => {
  const STRIPE_SECRET = 'whsec_of_stripe_which_is_no_base64';
  const env = () => ({ STRIPE_SECRET, PAYMENT_SECRET, STAMPEDE_URL: signed.url });
  const now = () => Math.floor(Date.now() / 1_000);
  const v1 = (body: string, time: number, secret = STRIPE_SECRET) =>
    createHmac('sha256', secret).update(`${time}.${body}`).digest('hex');
  const header = (body: string, time = now(), secret = STRIPE_SECRET) =>
    `t=${time},v1=${v1(body, time, secret)}`;
  const event = (id: string, orderId: unknown, more = {}) =>
    JSON.stringify({
      id: 'evt_1',
      type: 'payment_intent.succeeded',
      data: { object: { id, amount_received: 500, currency: 'eur', metadata: { orderId } } },
      ...more,
    });
  const statusOf = async (orderId: unknown) => (await call(`${signed.url}/orders/${orderId}`)).body.status;

  it('accepts what Stripe signed, and reports each payment once', async () => {
    const { id } = await createSale(signed.url, 1);
    const { orderId } = (await buy(signed.url, id, 'ann')).body;
    const body = event('pi_1', orderId);
    const time = now();
    const rotated = `t=${time},v1=${v1(body, time, 'whsec_old')},v0=${'0'.repeat(64)},v1=${v1(body, time)}`;
    const other = event('pi_2', orderId, { type: 'charge.refunded' });
    const unknown = event('pi_3', '00000000-0000-7000-8000-000000000000');
    const foreign = event('pi_6', '1001'); // of another shop with the same account
    const calls = [
      [bytes(body), rotated],
      [bytes(body), header(body, time - 200)],
      [bytes(other), header(other)],
      [bytes(unknown), header(unknown)],
      [bytes(foreign), header(foreign)],
    ];
    expect(await received('stripe.ts', calls, env())).toEqual([200, 200, 204, 200, 200]);
    expect(await statusOf(orderId)).toBe('paid');
    const { rows } = await stores.sql.query('SELECT id FROM payment_notifications WHERE order_id = $1', [
      orderId,
    ]);
    expect(rows).toEqual([{ id: 'stripe:pi_1' }]);
    const unmatched = (await call(`${signed.url}/payments/unmatched`)).body as unknown as object[];
    expect(unmatched).toMatchObject([{ notificationId: 'stripe:pi_3', actor: 'payments:stripe' }]);
  });

  it('lets Stripe repeat what Stampede has not answered in time', async () => {
    const body = event('pi_7', '00000000-0000-7000-8000-000000000000');
    const nowhere = { ...env(), STAMPEDE_URL: 'http://127.0.0.1:1' };
    expect(await received('stripe.ts', [[bytes(body), header(body)]], nowhere)).toEqual([503]);
  });

  it('refuses another secret, an old time, a changed body, and a header that is none', async () => {
    const { id } = await createSale(signed.url, 1);
    const { orderId } = (await buy(signed.url, id, 'ben')).body;
    const body = event('pi_4', orderId);
    const old = now() - 301;
    const headers = [
      header(body, now(), 'whsec_of_another'),
      header(body, now(), ''),
      header(body, old),
      header(body, now() + 400),
      header(event('pi_4', orderId, { id: 'evt_2' })),
      `t=${now()},v1=${v1(body, old)}`,
      header(body).replace('v1=', 'v0='),
      `v1=${v1(body, now())}`,
      `t=${now()},v1`,
      '',
    ];
    const calls = headers.map((one) => [bytes(body), one]);
    expect(await received('stripe.ts', calls, env())).toEqual(headers.map(() => 400));
    expect(await statusOf(orderId)).toBe('pending');
    await expect(received('stripe.ts', calls, { ...env(), STRIPE_SECRET: '' })).rejects.toThrow(
      'STRIPE_SECRET',
    );
  });

  it('is what the service asks for when Stripe posts to it directly', async () => {
    const body = event('pi_5', '00000000-0000-7000-8000-000000000000');
    const headers = { 'content-type': 'application/json', 'stripe-signature': header(body) };
    const answer = await call(`${signed.url}/payments/notifications`, { method: 'POST', body, headers });
    expect(answer).toMatchObject({ status: 401, problem: 'invalid-signature' });
    for (const part of [
      'webhook-id, webhook-timestamp and webhook-signature',
      'stripe-signature',
      'integrate.md',
    ])
      expect(answer.body.detail).toContain(part);
  });
});

it('the receiver of events refuses what neither secret has signed', async () => {
  const [first, second, other] = ['f', 's', 'o'].map(
    (letter) => `whsec_${Buffer.alloc(32, letter).toString('base64')}`,
  );
  const body = JSON.stringify({ id: 'task:1', type: 'order.expired', data: { orderId: 'x' } });
  const calls = await Promise.all(
    [first!, second!, other!].map(async (secret) => [await signWebhook(secret, 'task:1', body), bytes(body)]),
  );
  const env = { EVENT_WEBHOOK_SECRET: `${first},${second}` };
  expect(await received('events.mts', calls, env)).toEqual([204, 204, 401]);
});
