/** The pages as the server sends them: their policy, size and escapes; what they show to whom; and what the console computes. */
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { brotliDecompressSync, gunzipSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { activityBetween, readMetrics } from '../../src/metrics/activity.ts';
import { attempt, call, createSale } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService, type TestService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const MAX_BYTES = 100_000;

const stores = opened(openTestStores);
let service: TestService;
let split: TestService;

beforeAll(async () => {
  const env = envOf(stores);
  [service, split] = await Promise.all([startService(env), startService({ ...env, ADMIN_PORT: '0' })]);
});
afterAll(async () => {
  await service?.stop();
  await split?.stop();
});

/** Fetches a page, and lists the assets that it names. */
async function open(path: string, url = service.url, headers: Record<string, string> = {}) {
  const { status, headers: received, body } = await call(`${url}${path}`, { headers });
  const html = String(body.text);
  const assets = [...html.matchAll(/(?:src|href)="(\/assets\/[^"]+)"/g)].map((match) => match[1]!);
  const json = /<script type="application\/json" id="data">(.*)<\/script>/.exec(html)?.[1];
  return { status, headers: received, html, assets, data: json === undefined ? null : JSON.parse(json) };
}

it('lists sales by name and by state, in the API as on the page, page by page', async () => {
  const at = (ms: number) => new Date(Date.now() + ms).toISOString();
  const make = (name: string, stock: number, window: object = {}) =>
    createSale(service.url, stock, { name: `Ünique% ${name}`, ...window });
  const made = {
    open: await make('open', 2),
    scheduled: await make('scheduled', 2, { startsAt: at(3_600_000) }),
    'sold-out': await make('gone', 0),
    ended: await make('ended', 2, { startsAt: at(-7_200_000), endsAt: at(-3_600_000) }),
  };
  const list = async (query: string) => {
    const { body, headers } = await call(`${service.url}/sales?search=%C3%9CNIQUE%25&${query}`);
    return { ids: (body as unknown as { id: number }[]).map(({ id }) => id), next: headers.get('link') };
  };
  for (const [state, { id, name }] of Object.entries(made)) {
    expect((await list(`state=${state}`)).ids, state).toEqual([id]);
    const { html, data } = await open(`/?search=${encodeURIComponent(name)}&state=${state}`);
    expect(html).toContain(`<option value="${state}" selected>`);
    expect(data.sales).toMatchObject([{ id, state }]);
  }
  const first = await list('limit=3');
  expect(first.ids).toEqual([made.ended.id, made['sold-out'].id, made.scheduled.id]);
  const next = /<(.*)>/.exec(first.next!)![1]!;
  expect((await call(service.url + next)).body).toMatchObject([{ id: made.open.id }]);
  const { data } = await open('/?search=%22%3E%3Cscript%3E&state=never&before=x');
  expect(data).toMatchObject({ search: '"><script>', state: '', sales: [] });
  for (const query of ['search=', 'search=%00', 'state=never', `search=${'x'.repeat(201)}`])
    expect((await call(`${service.url}/sales?${query}`)).problem, query).toBe('invalid-request');
});

describe('a page', () => {
  it.each(['/', '/shop/1', '/console', '/shop/999999', '/shop/x'])(
    '%s allows nothing but what the service serves',
    async (path) => {
      await createSale(service.url, 3);
      const { headers, html } = await open(path);
      const policy = headers.get('content-security-policy')!;
      expect(policy.split('; ')).toEqual(
        expect.arrayContaining([
          "default-src 'none'",
          "script-src 'self'",
          "style-src 'self'",
          "connect-src 'self'",
        ]),
      );
      expect(policy).not.toMatch(/unsafe|https?:|data:/);
      expect(html).not.toMatch(
        /<style|style="| on[a-z]+="|<script(?! type="application\/json"| type="module" src="\/assets\/)/,
      );
    },
  );

  it.each(['/', '/shop/1', '/console'])(
    '%s is at most 100 kB with its script and styles, compressed',
    async (path) => {
      const { html, assets } = await open(path);
      expect(assets.length).toBeGreaterThan(2);
      let bytes = gzipSync(html).length;
      for (const asset of assets) {
        const response = await fetch(service.url + asset, { headers: { 'accept-encoding': 'gzip' } });
        bytes += Number(response.headers.get('content-length'));
        await response.arrayBuffer();
      }
      expect(bytes).toBeLessThan(MAX_BYTES);
    },
  );

  it('has scripts that browsers keep, in the encoding that the client accepts', async () => {
    const { assets } = await open('/');
    const script = assets.find((asset) => asset.endsWith('/shop.js'))!;
    const get = async (encoding: string, path = script) => {
      const { headers, body } = await call(service.url + path, { headers: { 'accept-encoding': encoding } });
      return {
        encoding: headers.get('content-encoding'),
        cache: headers.get('cache-control'),
        text: body.text,
        vary: headers.get('vary'),
      };
    };
    const plain = await get('identity');
    expect(plain).toMatchObject({
      encoding: null,
      cache: expect.stringContaining('immutable'),
      vary: 'Accept-Encoding',
    });
    expect(await get('br, gzip')).toMatchObject({ encoding: 'br', text: plain.text });
    expect(await get('gzip')).toMatchObject({ encoding: 'gzip', text: plain.text });
    // A path of another version: the page works, and no cache keeps the script.
    expect(await get('gzip', '/assets/another/shop.js')).toMatchObject({
      cache: 'no-store',
      text: plain.text,
    });
    expect((await call(`${service.url}/assets/x/${encodeURIComponent('../main.js')}`)).status).toBe(404);
    const file = fileURLToPath(new URL('../../dist/web/shop.js', import.meta.url));
    expect(existsSync(file)).toBe(true);
    expect(brotliDecompressSync(readFileSync(`${file}.br`))).toEqual(readFileSync(file));
    expect(gunzipSync(readFileSync(`${file}.gz`))).toEqual(readFileSync(file));
  });

  it('escapes names, in its text and in its data', async () => {
    const name = `</script><script>alert("&'")</script><!--`;
    const { id } = await createSale(service.url, 2, { name });
    for (const path of ['/', `/shop/${id}`]) {
      const { html, data } = await open(path);
      expect(html).not.toContain('<script>alert');
      expect(html).toContain('&lt;/script&gt;&lt;script&gt;alert(&quot;&amp;');
      expect(JSON.stringify(data)).toContain(JSON.stringify(name));
    }
  });

  it('shows what is left without a script, and the state by the clock of the store', async () => {
    const startsAt = new Date(Date.now() + 3_600_000).toISOString();
    const open3 = await createSale(service.url, 3);
    await attempt(service.url, open3.id, 'ann');
    const later = await createSale(service.url, 3, { startsAt });
    expect((await open(`/shop/${open3.id}`)).html).toMatch(
      /On sale[\s\S]*>2<\/span> <span class="soft">of 3 left/,
    );
    expect((await open(`/shop/${later.id}`)).html).toContain('Opens soon');
    expect(await open('/shop/999999')).toMatchObject({
      status: 404,
      html: expect.stringContaining('no such sale'),
    });
  });

  it('offers to report a payment only to clients that may', async () => {
    const { id } = await createSale(service.url, 3);
    expect((await open(`/shop/${id}`)).data.canPay).toBe(true);
    expect((await open(`/shop/${id}`, service.url, { via: 'a proxy' })).data.canPay).toBe(false);
    expect((await open(`/shop/${id}`, split.url)).data.canPay).toBe(false);
    expect((await open('/', split.url)).html).not.toContain('/console');
  });
});

describe('the activity between two readings', () => {
  const text = (n: number, slow: number) => `# HELP x
stampede_attempts_total{strategy="lua",outcome="accepted"} ${n}
stampede_attempts_total{strategy="lua",outcome="sold-out"} ${2 * n}
stampede_attempts_total{strategy="lua",outcome="not-open"} 5
stampede_attempts_total{strategy="lua",outcome="not-enough-units"} ${n}
stampede_attempts_total{strategy="lua",outcome="over-limit"} ${n}
stampede_attempt_duration_seconds_bucket{strategy="lua",outcome="accepted",le="0.001"} ${n - slow}
stampede_attempt_duration_seconds_bucket{strategy="lua",outcome="accepted",le="0.002"} ${n}
stampede_attempt_duration_seconds_bucket{strategy="lua",outcome="accepted",le="+Inf"} ${n}
stampede_attempt_batch_size_sum ${4 * n}
stampede_attempt_batch_size_count ${n}
stampede_tasks{state="waiting"} 3
`;

  it('has rates, quantiles and means of what happened in between', () => {
    const activity = activityBetween(readMetrics(text(100, 0)), readMetrics(text(300, 4)), 2);
    expect(activity.perSecond).toEqual({ accepted: 100, replayed: 0, refused: 400, busy: 0, unknown: 0 });
    expect(activity.p50Ms).toBeCloseTo(0.51, 2);
    expect(activity.p99Ms).toBeCloseTo(1.5, 2);
    expect(activity).toMatchObject({ attemptBatch: 4, commitBatch: null, tasks: { waiting: 3 } });
  });

  it('has no latency where nothing happened, and no negative rate after a restart', () => {
    const idle = activityBetween(readMetrics(text(100, 0)), readMetrics(text(100, 0)), 1);
    expect(idle).toMatchObject({ p50Ms: null, p99Ms: null, attemptBatch: null });
    const restarted = activityBetween(readMetrics(text(100, 0)), readMetrics(text(10, 0)), 1);
    expect(restarted.perSecond.accepted).toBe(0);
  });
});
