/** The pages as the server sends them: their policy, size and escapes, and the lists on them. */
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { call, createSale, patch, post } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const service = opened(() => startService(envOf(stores)));

/** Fetches a page, and lists the assets that it names. */
async function open(path: string) {
  const { headers, body } = await call(service.url + path);
  const html = String(body.text);
  const assets = [...html.matchAll(/(?:src|href)="(\/assets\/[^"]+)"/g)].map((match) => match[1]!);
  const json = /<script type="application\/json" id="data">(.*)<\/script>/.exec(html)?.[1];
  return { headers, html, assets, data: json === undefined ? null : JSON.parse(json) };
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
    '%s allows nothing but what the service serves: at most 100 kB with its script and styles, compressed',
    async (path) => {
      await createSale(service.url, 3);
      const { headers, html, assets } = await open(path);
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
      let bytes = gzipSync(html).length;
      for (const asset of assets) {
        const response = await fetch(service.url + asset, { headers: { 'accept-encoding': 'gzip' } });
        bytes += Number(response.headers.get('content-length'));
        await response.arrayBuffer();
      }
      expect(bytes).toBeLessThan(100_000);
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
  });

  it('may load the pictures of its sales, and from no other host', async () => {
    const picture = (imageUrl: string) => createSale(service.url, 1, { name: 'Pictured', imageUrl });
    const { id } = await picture('https://a.example.com:8443/shoe.webp');
    await picture('https://b.example.com/1');
    await picture('https://b.example.com/2');
    const images = async (path: string) =>
      /img-src [^;]*/.exec((await open(path)).headers.get('content-security-policy')!)?.[0];
    expect(await images(`/shop/${id}`)).toBe("img-src 'self' https://a.example.com:8443");
    expect(await images('/?search=Pictured')).toBe(
      "img-src 'self' https://b.example.com https://a.example.com:8443",
    );
    expect(await images('/?search=nothing')).toBe("img-src 'self'");
    const insert = `INSERT INTO sale_texts (sale_id, image_url) VALUES (${id + 1}, $1)
      ON CONFLICT (sale_id) DO UPDATE SET image_url = excluded.image_url`;
    for (const url of ['https://*/', 'https://a;script-src b/', 'https://a b/', 'https://u@a/', 'ftp://a/'])
      await expect(stores.sql.query(insert, [url]), url).rejects.toThrow('sale_texts_image_url_plain');
  });

  it.each([
    ['text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8', 'text/html'],
    ['application/json', 'application/json'],
    ['application/json, text/html;q=0.9', 'application/json'],
    ['*/*', 'application/json'],
    ['', 'application/json'],
    ['image/png', 'application/json'],
  ])('of a sale has the address of the sale in the API: Accept %s gets %s', async (accept, type) => {
    const { id } = await createSale(service.url, 2, { name: 'Two ways' });
    // Not `call`: the document describes what programs get.
    const at = (path: string) => fetch(service.url + path, { headers: { accept } });
    const answer = await at(`/sales/${id}`);
    expect(answer.headers.get('content-type')).toMatch(type);
    expect(answer.headers.get('vary')).toContain('Accept');
    if (type === 'text/html') expect(await answer.text()).toContain('<h1 dir="auto">Two ways</h1>');
    else expect(await answer.json()).toMatchObject({ id, name: 'Two ways' });
    const missing = await at('/sales/999999');
    expect(missing.status).toBe(404);
    expect(missing.headers.get('content-type')).toMatch(
      type === 'text/html' ? type : 'application/problem+json',
    );
  });

  it('says when a sale opens that is paused before its start, and asks for a code that will open it', async () => {
    const [startsAt, opensAt] = ['2101-01-01T00:00:00.000Z', '2100-01-01T00:00:00.000Z'];
    const { id } = await createSale(service.url, 2, { startsAt });
    const codes = [{ code: 'EARLY', uses: 1 }];
    await post(`${service.url}/sales/${id}/groups`, { name: 'members', opensAt, codes });
    await patch(`${service.url}/sales/${id}`, { paused: true });
    const { html, data } = await open(`/shop/${id}`);
    expect(html).toContain(`<p class="label">Opens</p><p><time datetime="${startsAt}">`);
    expect(data).toMatchObject({ codesFrom: opensAt, sale: { state: 'paused' } });
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
});
