/** In front of a service: something that answers requests in its place, one after the other, and then passes them on. */

import { randomUUID } from 'node:crypto';
import { type Problem, problems } from '../../src/http/problems.ts';
import { openReceiver } from './receiver.ts';

type Slug = keyof typeof problems;

/**
 * A problem, with `Retry-After` if seconds are given (by default 1). `lost`: the service has the request, and the connection ends without
 * an answer. `unknown-outcome`: the service has the request, too; the `orderId` is that of an order which the request placed, or of none.
 * `cut`: the connection ends within the body of a problem. `proxy`: as something in between answers. `pass`: passed on.
 */
export type FrontStep = Slug | 'lost' | 'cut' | 'proxy' | 'pass' | readonly [slug: Slug, retryAfterS: number];

export interface Front extends AsyncDisposable {
  readonly url: string;
  /** Requests so far: their headers. */
  readonly requests: readonly NodeJS.Dict<string | string[]>[];
}

export async function openFront(service: string, ...steps: FrontStep[]): Promise<Front> {
  const requests: NodeJS.Dict<string | string[]>[] = [];
  const server = await openReceiver(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    requests.push(request.headers);
    const step = steps.shift() ?? 'pass';
    const [slug, retryAfterS] = typeof step === 'object' ? step : [step, 1];
    const passes = slug === 'pass' || slug === 'lost' || slug === 'unknown-outcome';
    const { method = 'GET', headers } = request;
    const body = chunks.length > 0 ? Buffer.concat(chunks) : null;
    const sent = Object.entries(headers).filter(([name]) => !/^(host|connection|content-length)$/.test(name));
    const init = { method, body, headers: sent as [string, string][] };
    const answer = passes ? await fetch(`${service}${request.url}`, init) : null;
    if (slug === 'lost') return void request.socket.destroy();
    if (slug === 'pass') {
      response.writeHead(answer!.status, { 'Content-Type': answer!.headers.get('content-type')! });
      return void response.end(await answer!.text());
    }
    if (slug === 'cut') {
      response.writeHead(409, { 'Content-Type': 'application/problem+json', 'Content-Length': '100' });
      return void response.write('{"type":"/problems/sold-out"', () => request.socket.destroy());
    }
    if (slug === 'proxy') {
      response.writeHead(429, { 'Content-Type': 'text/html', 'Retry-After': new Date().toUTCString() });
      return void response.end('<h1>Too many requests</h1>');
    }
    const { status, title }: Problem = problems[slug];
    const type = 'application/problem+json';
    response.writeHead(status, { 'Content-Type': type, 'Retry-After': String(retryAfterS) });
    const placed = (answer?.status === 201 ? await answer.json() : {}) as { readonly orderId?: string };
    const more = slug === 'unknown-outcome' && { orderId: placed.orderId ?? randomUUID() };
    response.end(JSON.stringify({ type: `/problems/${slug}`, title, status, detail: title, ...more }));
  });
  return { ...server, requests };
}
