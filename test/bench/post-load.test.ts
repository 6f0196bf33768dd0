import type { ServerResponse } from 'node:http';
import { describe, expect, it } from 'vitest';
import { type PostLoad, runPostLoad } from '../../bench/load/post-load.ts';
import { serve } from './fake-service.ts';

/** An action on an order: "pay a", "cancel b". */
type Deed = string;

/** A service whose orders change state as they should, except for the deeds that `behave` answers itself. */
async function fakeService(
  behave: (deed: Deed, n: number, response: ServerResponse) => boolean = () => false,
) {
  const states = new Map<string, string>();
  let atOnce = 0;
  const respond = (deed: Deed, response: ServerResponse): void => {
    const [what, id = ''] = deed.split(' ');
    const state = states.get(id) ?? 'pending';
    if (what === 'cancel' && state !== 'pending') {
      response.writeHead(409).end('{"type":"/problems/invalid-transition","title":"t","status":409}');
      return;
    }
    const paid = state === 'cancelled' || state === 'refund-due' ? 'refund-due' : 'paid';
    const status = what === 'cancel' ? 'cancelled' : paid;
    states.set(id, status);
    response.writeHead(200).end(JSON.stringify({ orderId: id, status }));
  };
  const fake = { deeds: [] as Deed[], notifications: new Set<string>(), mostAtOnce: 0 };
  const url = await serve((body, response, request) => {
    atOnce += 1;
    fake.mostAtOnce = Math.max(fake.mostAtOnce, atOnce);
    response.once('close', () => {
      atOnce -= 1;
    });
    const cancelled = /^\/orders\/(.+)\/cancel$/.exec(request.url ?? '')?.[1];
    const sent = body === '' ? {} : (JSON.parse(body) as Record<string, string>);
    const deed = cancelled === undefined ? `pay ${sent.orderId}` : `cancel ${cancelled}`;
    if (sent.notificationId !== undefined) fake.notifications.add(sent.notificationId);
    const n = fake.deeds.filter((earlier) => earlier === deed).length;
    fake.deeds.push(deed);
    setTimeout(() => {
      if (!behave(deed, n, response)) respond(deed, response);
    }, 5);
  });
  return Object.assign(fake, { url });
}

const orders = (count: number): string[] => Array.from({ length: count }, (_, n) => `order-${n}`);

function run(load: Pick<PostLoad, 'url'> & Partial<PostLoad>) {
  const { signal } = new AbortController();
  return runPostLoad({ orderIds: orders(12), priceCents: 1_000, mayCancel: true, signal, ...load });
}

describe('after a load', () => {
  it('pays, cancels and pays too late, each twice at the same time, and leaves orders as they are', async () => {
    const fake = await fakeService();
    const result = await run(fake);
    expect(result).toEqual({ paid: 4, cancelled: 4, refundDue: 2, findings: [] });
    const times = new Map<Deed, number>();
    for (const deed of fake.deeds) times.set(deed, (times.get(deed) ?? 0) + 1);
    expect(new Set(times.values())).toEqual(new Set([2]));
    expect(times.size).toBe(4 + 4 + 2);
    expect(fake.notifications.size).toBe(4 + 2);
    expect(new Set(fake.deeds.map((deed) => deed.split(' ')[1])).size).toBe(8);
  });

  it('cancels nothing when it may not, and does nothing with too few orders', async () => {
    const fake = await fakeService();
    const none = { cancelled: 0, refundDue: 0, findings: [] };
    expect(await run({ ...fake, mayCancel: false })).toEqual({ paid: 4, ...none });
    expect(await run({ ...fake, orderIds: [] })).toEqual({ paid: 0, ...none });
    expect(await run({ ...fake, orderIds: orders(2) })).toEqual({ paid: 0, ...none });
  });

  it('reports unexpected answers, and continues', async () => {
    const fake = await fakeService((deed, n, response) => {
      const [what] = deed.split(' ');
      if (deed === 'pay order-0') response.writeHead(500).end('broken <b>');
      else if (deed === 'pay order-3') response.destroy();
      else if (what === 'cancel' && n === 1) response.writeHead(200).end('{"status":"cancelled"}');
      else return false;
      return true;
    });
    const { paid, cancelled, refundDue, findings } = await run({ ...fake, orderIds: orders(12) });
    expect({ paid, cancelled, refundDue }).toEqual({ paid: 2, cancelled: 0, refundDue: 0 });
    const [sent] = findings;
    expect(sent).toContain('unexpected pairs of answers after the load: 6');
    expect(sent).toMatch(/twice: .+ instead of 200 (paid|cancelled), /);
  });

  it('ends in time when nothing is answered, when no server listens, and when it is aborted', async () => {
    const fake = await fakeService(() => true);
    const began = performance.now();
    const late = await run({ ...fake, orderIds: orders(300), durationMs: -1 });
    expect(late).toMatchObject({
      paid: 0,
      cancelled: 0,
      findings: [expect.stringContaining('no time: 100')],
    });
    const gone = await run({ url: 'http://127.0.0.1:1' });
    expect(gone.findings[0]).toMatch(/after the load: 8, .*no answer \(.+\), no answer/);
    const stop = new AbortController();
    setTimeout(() => stop.abort(), 100);
    const stopped = await run({ ...fake, orderIds: orders(300), signal: stop.signal });
    expect(stopped.findings[1]).toContain(`no time: ${100 - 8}`);
    expect(performance.now() - began).toBeLessThan(5_000);
  });
});
