/** Traces of a running service, as an OTLP receiver gets them. */

import { expect, it } from 'vitest';
import { buy, call, createSale, users } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { openReceiver } from '../support/receiver.ts';
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
const spans: Span[] = [];
const receiver = opened(() =>
  openReceiver(async (req, res) => {
    const body = [];
    for await (const chunk of req) body.push(chunk);
    const { resourceSpans } = JSON.parse(Buffer.concat(body).toString());
    for (const { scopeSpans } of resourceSpans) for (const scope of scopeSpans) spans.push(...scope.spans);
    res.writeHead(req.url === '/v1/traces' ? 200 : 404, { 'content-type': 'application/json' }).end('{}');
  }),
);

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

it("a purchase continues its client's trace, down to the statement that commits it", async () => {
  await using service = await spawnService({
    ...envOf(stores),
    OTEL_EXPORTER_OTLP_ENDPOINT: receiver.url,
  });
  const { id } = await createSale(service.url, 10);
  const answers = await Promise.all(users(9).map((name) => buy(service.url, id, name)));
  expect(answers.filter(({ status }) => status < 300)).toHaveLength(9);
  expect((await call(`${service.url}/sales/${id}`)).status).toBe(200);
  await call(`${service.url}/sales/${id}/orders`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      traceparent: `00-0af7651916cd43dd8448eb211c80319c-${CLIENT}-01`,
    },
    body: '{"userId":"ann"}',
  });
  expect(await service.stop()).toBe(0);
  // The service may end before this process has read what was sent.
  await expect.poll(() => spans.some(({ parentSpanId }) => parentSpanId === CLIENT)).toBe(true);
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
  expect(attributesOf(commit)).toEqual({ 'stampede.order.id': orderId, 'stampede.result': 'accepted' });
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
