/** Traces of a running service, as an OTLP receiver gets them; without a receiver, the SDK of OpenTelemetry is not loaded. */
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { buy, call, createSale, eventually, users } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { spawnService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

interface Span {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind: number;
  readonly attributes: { key: string; value: { stringValue?: string; intValue?: number } }[];
  readonly links?: { spanId: string }[];
}

const stores = opened(openTestStores);
let folder: string;
const spans: Span[] = [];
const receiver = createServer(async (req, res) => {
  const body = [];
  for await (const chunk of req) body.push(chunk);
  const { resourceSpans } = JSON.parse(Buffer.concat(body).toString());
  for (const { scopeSpans } of resourceSpans) for (const scope of scopeSpans) spans.push(...scope.spans);
  res.writeHead(req.url === '/v1/traces' ? 200 : 404, { 'content-type': 'application/json' }).end('{}');
});
let env: Record<string, string>;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'stampede-test-traces-'));
  // At exit, prints how many files of the SDK were loaded. The API is not counted: prom-client loads it.
  const report = join(folder, 'report.cjs');
  writeFileSync(
    report,
    `process.on('exit', () => console.log('loaded ' + Object.keys(require('node:module')._cache).filter((file) => /opentelemetry.(?!api.build)/.test(file)).length))`,
  );
  receiver.listen(0, '127.0.0.1');
  await once(receiver, 'listening');
  env = { ...envOf(stores), NODE_OPTIONS: `--require=${report}` };
});
afterAll(async () => {
  receiver.closeAllConnections();
  receiver.close();
  await rm(folder, { recursive: true });
});

const endpoint = () => `http://127.0.0.1:${(receiver.address() as AddressInfo).port}`;
const loaded = (log: readonly string[]) =>
  Number(/^loaded (\d+)$/.exec(log.find((line) => line.startsWith('loaded ')) ?? '')?.[1]);
const attributesOf = ({ attributes }: Span) =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, value.stringValue ?? Number(value.intValue)]));
const only = (some: readonly Span[]): Span => {
  expect(some.map(({ name }) => name)).toHaveLength(1);
  return some[0]!;
};
const childrenOf = (parent: Span, name?: string) =>
  spans.filter(
    ({ parentSpanId, traceId, name: its }) =>
      parentSpanId === parent.spanId && traceId === parent.traceId && (name ?? its) === its,
  );

/** The span of a traced client. */
const CLIENT = 'b7ad6b7169203331';

/** Buys with a service that sends its traces. @param isWarm another customer buys first: Prisma's engine is loaded @returns the answers, and the log of the service */
async function tracedPurchases(
  strategy: string,
  customers: readonly string[],
  more: Record<string, string> = {},
  isWarm = false,
) {
  spans.length = 0;
  await using service = await spawnService({
    ...env,
    STRATEGY: strategy,
    OTEL_EXPORTER_OTLP_ENDPOINT: endpoint(),
    ...more,
  });
  const { id } = await createSale(service.url, 10);
  if (isWarm)
    await eventually(
      () => buy(service.url, id, 'first'),
      ({ status }) => status !== 503,
    );
  const answers = await Promise.all(customers.map((name) => buy(service.url, id, name)));
  expect((await call(`${service.url}/sales/${id}`)).status).toBe(200);
  const traceparent = `00-0af7651916cd43dd8448eb211c80319c-${CLIENT}-01`;
  await call(`${service.url}/sales/${id}/orders`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', traceparent },
    body: '{"userId":"ann"}',
  });
  expect(await service.stop()).toBe(0);
  // The last one: the service may end before this process has read what was sent.
  if (more.OTEL_EXPORTER_OTLP_ENDPOINT === undefined)
    await expect.poll(() => spans.some(({ parentSpanId }) => parentSpanId === CLIENT)).toBe(true);
  return { id, answers, log: service.log };
}

it("a purchase continues its client's trace, down to the statement that commits it", async () => {
  const { id, answers, log } = await tracedPurchases('lua', users(9));
  expect(answers.filter(({ status }) => status < 300)).toHaveLength(9);
  expect(loaded(log)).toBeGreaterThan(50);
  const request = only(spans.filter(({ parentSpanId }) => parentSpanId === CLIENT));
  expect(request).toMatchObject({
    traceId: '0af7651916cd43dd8448eb211c80319c',
    name: 'POST /sales/:saleId/orders',
    kind: 2,
  });
  expect(attributesOf(request)).toEqual({
    'http.request.method': 'POST',
    'http.route': '/sales/:saleId/orders',
    'http.response.status_code': 201,
  });
  const purchase = only(childrenOf(request));
  const { 'stampede.order.id': orderId, ...more } = attributesOf(purchase);
  expect(purchase.name).toBe('purchase attempt');
  expect(more).toEqual({
    'stampede.strategy': 'lua',
    'stampede.sale.id': id,
    'stampede.outcome': 'accepted',
  });
  expect(childrenOf(purchase).some(({ name }) => /^redis evalsha/.test(name))).toBe(true);
  const commit = only(childrenOf(purchase, 'commit order'));
  expect(attributesOf(commit)).toEqual({ 'stampede.order.id': orderId, 'stampede.result': 'committed' });
  const batch = only(childrenOf(commit, 'postgres commit-orders'));
  expect(attributesOf(batch)).toEqual({ 'db.system.name': 'postgresql', 'stampede.orders': 1 });

  const commits = spans.filter(({ name }) => name === 'commit order');
  expect(new Set(commits.map(({ traceId }) => traceId)).size).toBe(10);
  const batches = spans.filter(({ name }) => name === 'postgres commit-orders');
  const members = batches.flatMap(({ parentSpanId, links = [] }) => [
    parentSpanId,
    ...links.map((link) => link.spanId),
  ]);
  expect(members.sort()).toEqual(commits.map(({ spanId }) => spanId).sort());
  // No customer is named, and background work has no traces.
  expect(JSON.stringify(spans)).not.toMatch(/ann|user-/);
  const roots = spans.filter(({ parentSpanId }) => !parentSpanId).map(({ name }) => name);
  expect(new Set(roots)).toEqual(
    new Set(['POST /sales', 'GET /sales/:saleId', 'POST /sales/:saleId/orders']),
  );
});

it.each(['group-commit', 'for-update-prisma'])('%s: a purchase has its statements', async (strategy) => {
  await tracedPurchases(strategy, [], {}, true);
  const request = only(spans.filter(({ parentSpanId }) => parentSpanId === CLIENT));
  const purchase = only(childrenOf(request));
  const given = { 'stampede.strategy': strategy, 'stampede.outcome': 'accepted' };
  expect(attributesOf(purchase)).toMatchObject(given);
  expect(childrenOf(purchase).some(({ name }) => name.startsWith('postgres '))).toBe(true);
});

it('with a ratio of 0, traces only the requests of a traced client', async () => {
  await tracedPurchases('lua', users(5), { OTEL_TRACES_SAMPLER_ARG: '0' });
  expect(new Set(spans.map(({ traceId }) => traceId))).toEqual(new Set(['0af7651916cd43dd8448eb211c80319c']));
});

it('an unreachable collector fails no request, and is logged once', async () => {
  const { answers, log } = await tracedPurchases('lua', users(3), {
    OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:9',
  });
  expect(answers.filter(({ status }) => status < 300)).toHaveLength(3);
  expect(log.filter((line) => line.includes('send-traces')).length).toBeLessThanOrEqual(1);
});

it('without an endpoint, the SDK of OpenTelemetry is not loaded', async () => {
  const { answers, log } = await tracedPurchases('lua', users(1), { OTEL_EXPORTER_OTLP_ENDPOINT: '' });
  expect(answers[0]!.status).toBeLessThan(300);
  expect(loaded(log)).toBe(0);
  expect(spans).toEqual([]);
});
