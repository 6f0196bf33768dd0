/** The purchase flow of the shop's page, without a browser: what it sends, when, and how it ends. */
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';

/** Not a literal: it has the types of a browser. */
const page = (name: string) =>
  import(/* @vite-ignore */ new URL(`../../src/web/${name}.ts`, import.meta.url).href);
type Module = Awaited<ReturnType<typeof page>>;
let flow: Module;

interface Sent {
  readonly atMs: number;
  readonly route: string;
  readonly init: RequestInit;
}
let sent: Sent[];
/** What requests get, one after the other; the last one again and again. */
let answers: (Response | null)[];
const store = new Map<string, string>();

beforeAll(async () => {
  vi.useFakeTimers();
  vi.stubGlobal('sessionStorage', {
    getItem: (key: string) => store.get(key) ?? null,
    setItem: (key: string, value: string) => store.set(key, value),
    removeItem: (key: string) => store.delete(key),
  });
  vi.stubGlobal('fetch', async (path: string, init: RequestInit) => {
    sent.push({ atMs: Date.now(), route: `${init.method} ${path.split('?')[0]}`, init });
    const answer = answers.length > 1 ? answers.shift() : answers[0];
    if (!answer) throw new TypeError('fetch failed');
    return answer.clone();
  });
  flow = await page('shop/purchase');
  (await page('ui/time')).setClock(Date.now());
  const claims = Buffer.from('{"sub":"ann"}').toString('base64url');
  (await page('shop/customer')).become(`h.${claims}.s`);
});
afterAll(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});
beforeEach(() => {
  flow.found(1);
  sent = [];
});

const buyer = { saleId: 1, auth: 'none', proofWorker: '' };
const guarded = { ...buyer, auth: 'jwt' };
const ORDER = 'POST /sales/1/orders';
const FIND = 'GET /sales/1/orders';
const TICKET = 'POST /sales/1/tickets';

const answer = (status: number, body: object, headers: object = {}) =>
  new Response(JSON.stringify(body), {
    status,
    headers: { 'content-type': status < 300 ? 'application/json' : 'application/problem+json', ...headers },
  });
const problem = (status: number, slug: string, headers?: object) =>
  answer(status, { type: `/problems/${slug}`, detail: slug }, headers);
const busy = () => problem(503, 'busy', { 'Retry-After': '2' });
const unknownOrder = () => problem(404, 'unknown-order');
const soldOut = () => problem(409, 'sold-out');
const order = () => answer(200, { orderId: 'o', status: 'pending' });
const ticket = (inMs = 0) =>
  answer(201, { ticket: `t-${inMs}`, notBefore: new Date(Date.now() + inMs).toISOString() });
const lost = null;
const PLACED = { kind: 'placed', orderId: 'o' };

/** Presses the button, and lets time pass. */
async function press(by: object, all: (Response | null)[], ms = 60_000, mayExist = false) {
  answers = all;
  void flow.buy(by, mayExist);
  await vi.advanceTimersByTimeAsync(ms);
}
const routes = () => sent.map(({ route }) => route);

describe('the same request is sent again', () => {
  it.each<[string, Response | null, string, number]>([
    ['busy', busy(), 'busy', 2_000],
    ['busy without Retry-After', problem(503, 'busy'), 'busy', 1_000],
    ['too many', problem(429, 'too-many-requests', { 'Retry-After': '3' }), 'limit', 3_000],
    ['too early', problem(409, 'too-early', { 'Retry-After': '5' }), 'turn', 5_000],
    ['unknown', problem(503, 'unknown-outcome'), 'unknown', 4_000],
    ['no answer', lost, 'unknown', 4_000],
  ])('after %s', async (_name, first, why, ms) => {
    await press(buyer, [first, order()], 100);
    expect(flow.purchase.value).toMatchObject({ kind: 'waiting', why });
    await flow.buy(buyer); // another press does nothing
    await vi.advanceTimersByTimeAsync(ms + 1_000);
    expect(flow.purchase.value).toEqual(PLACED);
    expect(routes()).toEqual([ORDER, ORDER]);
    expect(sent[1]!.init.body).toBe(sent[0]!.init.body);
    const pauseMs = sent[1]!.atMs - sent[0]!.atMs;
    expect(pauseMs).toBeGreaterThanOrEqual(why === 'turn' ? ms - 1 : ms);
    expect(pauseMs).toBeLessThanOrEqual(ms + 1_000);
  });
});

describe('a refusal', () => {
  it('ends an attempt none of whose answers was lost', async () => {
    await press(buyer, [busy(), soldOut()]);
    expect(flow.purchase.value).toMatchObject({ kind: 'refused', problem: { slug: 'sold-out' } });
    expect(routes()).toEqual([ORDER, ORDER]);
  });

  it.each([
    ['of a purchase', buyer, [lost, soldOut(), order()], [ORDER, ORDER, FIND]],
    ['of a ticket', guarded, [ticket(), lost, problem(401, 'invalid-ticket'), soldOut(), order()], null],
  ])('%s after a lost answer is none, if the order is there', async (_name, by, all, expected) => {
    await press(by, all);
    expect(flow.purchase.value).toEqual(PLACED);
    expect(routes()).toEqual(expected ?? [TICKET, ORDER, ORDER, TICKET, FIND]);
  });

  it('after a lost answer counts once no order can be placed any more', async () => {
    // No answer, and then a refusal while none finds an order.
    const all = [lost, ...Array.from({ length: 20 }, () => [soldOut(), unknownOrder()]).flat()];
    await press(buyer, all);
    expect(flow.purchase.value).toMatchObject({ kind: 'refused', problem: { slug: 'sold-out' } });
    expect(sent.at(-1)!.atMs - sent[0]!.atMs).toBeGreaterThanOrEqual(10_000);
  });
});

describe('a visitor who stops', () => {
  it('sends nothing more, if no order can exist', async () => {
    await press(buyer, [busy()], 100);
    void flow.stop();
    expect(flow.purchase.value).toEqual({ kind: 'idle' });
    await vi.advanceTimersByTimeAsync(20_000);
    expect(routes()).toEqual([ORDER]);
  });

  it.each([
    ['finds the order of a lost answer', [unknownOrder(), busy(), lost, order()], PLACED],
    ['looks until none can be placed any more', [unknownOrder()], { kind: 'idle' }],
  ])('%s', async (_name, looks, end) => {
    await press(buyer, [lost], 100);
    answers = looks;
    void flow.stop();
    await vi.advanceTimersByTimeAsync(1_000);
    expect(flow.purchase.value).toEqual({ kind: 'checking' });
    await vi.advanceTimersByTimeAsync(20_000);
    expect(flow.purchase.value).toEqual(end);
    expect(new Set(routes().slice(1))).toEqual(new Set([FIND]));
    if (end !== PLACED) expect(sent.at(-1)!.atMs - sent[0]!.atMs).toBeGreaterThanOrEqual(10_000);
  });
});

describe('with a ticket', () => {
  it('buys when its turn comes', async () => {
    await press(guarded, [ticket(90_000), order()]);
    expect(flow.purchase.value).toMatchObject({ kind: 'waiting', why: 'turn' });
    expect(flow.waitedFor(1)).toMatchObject({ mayExist: false });
    expect([flow.waitedFor(2), routes()]).toEqual([null, [TICKET]]);
    await vi.advanceTimersByTimeAsync(31_000);
    expect(flow.purchase.value).toEqual(PLACED);
    expect(sent[1]!.init.headers).toMatchObject({ Authorization: 'Bearer t-90000' });
    expect(sent[1]!.atMs - sent[0]!.atMs).toBeGreaterThanOrEqual(89_999);
    expect(flow.waitedFor(1)).toBeNull();
  });

  it('takes another one for one that is not accepted, however often the shop was busy before', async () => {
    const invalid = problem(401, 'invalid-ticket');
    await press(guarded, [ticket(), busy(), busy(), busy(), busy(), invalid, ticket(), order()]);
    expect(flow.purchase.value).toEqual(PLACED);
    expect(routes().filter((route) => route === TICKET)).toHaveLength(2);
  });

  it('takes at most three more', async () => {
    const all = Array.from({ length: 9 }, () => [ticket(), problem(401, 'invalid-ticket')]).flat();
    await press(guarded, all);
    expect(flow.purchase.value).toMatchObject({ kind: 'refused', problem: { slug: 'invalid-ticket' } });
    expect(routes().filter((route) => route === TICKET)).toHaveLength(4);
  });

  it('finds the order of a lost answer after a reload, also when the first read of it is lost', async () => {
    await press(guarded, [ticket(), lost], 100);
    expect(flow.waitedFor(1)).toMatchObject({ mayExist: true, quantity: 1 });
    flow.found(1); // as the new page begins: without an attempt
    await press(guarded, [soldOut(), lost, soldOut(), order()], 60_000, true);
    expect(flow.purchase.value).toEqual(PLACED);
  });
});
