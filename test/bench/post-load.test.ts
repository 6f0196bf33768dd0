import type { ServerResponse } from 'node:http';
import { describe, expect, it } from 'vitest';
import { type PostLoad, runPostLoad } from '../../bench/load/post-load.ts';
import { serve } from './fake-service.ts';

/**
 * A service whose orders change state as they should, except for deeds, such as "pay a" and "cancel b", that `behave`
 * answers itself when they are done for the n-th time, counted from 0.
 */
async function fakeService(behave = (_deed: string, _n: number, _response: ServerResponse) => false) {
  const states = new Map<string, string>();
  const respond = (deed: string, response: ServerResponse): void => {
    const [what, id = ''] = deed.split(' ');
    const state = states.get(id) ?? 'pending';
    if (what === 'cancel' && state !== 'pending') {
      response.writeHead(409).end('{"type":"/problems/invalid-transition","title":"t","status":409}');
      return;
    }
    const paid = state === 'cancelled' || state === 'refund-due' ? 'refund-due' : 'paid';
    const status = what === 'cancel' ? 'cancelled' : paid;
    states.set(id, status);
    response.end(JSON.stringify({ orderId: id, status }));
  };
  const fake = { times: new Map<string, number>(), notifications: new Set<string>() };
  const url = await serve((body, response, request) => {
    const cancelled = /^\/orders\/(.+)\/cancel$/.exec(request.url ?? '')?.[1];
    const sent = body === '' ? {} : (JSON.parse(body) as Record<string, string>);
    const deed = cancelled === undefined ? `pay ${sent.orderId}` : `cancel ${cancelled}`;
    if (sent.notificationId !== undefined) fake.notifications.add(sent.notificationId);
    const n = fake.times.get(deed) ?? 0;
    fake.times.set(deed, n + 1);
    setTimeout(() => {
      if (!behave(deed, n, response)) respond(deed, response);
    }, 5);
  });
  return { ...fake, url };
}

const orders = (count: number): string[] => Array.from({ length: count }, (_, n) => `order-${n}`);

function run(url: string, load: Partial<PostLoad> = {}) {
  const { signal } = new AbortController();
  return runPostLoad({ url, orderIds: orders(12), priceCents: 1_000, mayCancel: true, signal, ...load });
}

describe('after a load', () => {
  it('pays, cancels and pays too late, each twice at the same time, and leaves orders as they are', async () => {
    const { url, times, notifications } = await fakeService();
    expect(await run(url)).toEqual({ paid: 4, cancelled: 4, refundDue: 2, findings: [] });
    expect([...times.values()]).toEqual(Array.from({ length: 4 + 4 + 2 }, () => 2));
    expect(notifications.size).toBe(4 + 2);
    expect(new Set([...times.keys()].map((deed) => deed.split(' ')[1])).size).toBe(8);
  });

  it('cancels nothing when it may not, and does nothing with too few orders', async () => {
    const { url } = await fakeService();
    const none = { cancelled: 0, refundDue: 0, findings: [] };
    expect(await run(url, { mayCancel: false })).toEqual({ paid: 4, ...none });
    expect(await run(url, { orderIds: orders(2) })).toEqual({ paid: 0, ...none });
  });

  it('reports unexpected answers, and continues', async () => {
    const { url } = await fakeService((deed, n, response) => {
      if (deed === 'pay order-0') response.writeHead(500).end('broken <b>');
      else if (deed === 'pay order-3') response.destroy();
      else if (deed.startsWith('cancel') && n === 1) response.end('{"status":"cancelled"}');
      else return false;
      return true;
    });
    const { findings, ...counts } = await run(url);
    expect(counts).toEqual({ paid: 2, cancelled: 0, refundDue: 0 });
    expect(findings[0]).toContain('unexpected pairs of answers after the load: 6');
    expect(findings[0]).toMatch(/twice: .+ instead of 200 (paid|cancelled), /);
  });

  it('ends in time when nothing is answered, when no server listens, and when it is aborted', async () => {
    const end = new AbortController();
    const { url } = await fakeService(() => {
      end.abort(new Error('stopped'));
      return true;
    });
    const many = { orderIds: orders(300) };
    const late = await run(url, { ...many, durationMs: -1 });
    expect(late).toMatchObject({ paid: 0, findings: [expect.stringContaining('no time: 100')] });
    const gone = await run('http://127.0.0.1:1');
    expect(gone.findings[0]).toMatch(/after the load: 8, .*no answer \(.+\), no answer/);
    const stopped = await run(url, { ...many, signal: end.signal });
    expect(stopped.findings[0]).toMatch(/after the load: 8, .*no answer \(stopped\), no answer \(stopped\)/);
    expect(stopped.findings[1]).toContain(`no time: ${100 - 8}`);
  });
});
