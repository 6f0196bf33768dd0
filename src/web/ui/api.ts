/** Requests to the service that served the page. Every result is a value, including a missing response. */
import type { ProblemSlug } from '../../http/problems.ts';
import type { Answer, Problem } from './answers.ts';

export interface RequestOptions {
  /** A body makes it a POST, unless another method is named. */
  readonly body?: object;
  readonly method?: 'PATCH' | 'DELETE';
  readonly token?: string;
  /** See `Idempotency-Key` of the API. */
  readonly key?: string;
}

/** Longer than the slowest response of the service. */
const TIMEOUT_MS = 20_000;

export async function ask<T>(
  path: string,
  { body, token, method, key }: RequestOptions = {},
): Promise<Answer<T>> {
  try {
    const response = await fetch(path, {
      method: method ?? (body === undefined ? 'GET' : 'POST'),
      headers: {
        ...(body === undefined ? {} : { 'Content-Type': 'application/json' }),
        ...(key === undefined ? {} : { 'Idempotency-Key': key }),
        ...bearer(token),
      },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      cache: 'no-store',
      signal: AbortSignal.timeout(TIMEOUT_MS),
    });
    // A proxy may have sent it: the service may have received the request.
    const isProblem = response.headers.get('Content-Type')?.startsWith('application/problem+json') === true;
    if (!response.ok && !isProblem) return { kind: 'lost' };
    const answer = response.status === 204 ? null : await response.json();
    if (!response.ok) return problemOf(response, answer);
    const sentMs = Date.parse(response.headers.get('Date') ?? '');
    return { kind: 'ok', status: response.status, sentMs, body: answer };
  } catch {
    return { kind: 'lost' };
  }
}

export const bearer = (token = ''): Record<string, string> =>
  token === '' ? {} : { Authorization: `Bearer ${token}` };

/** The pause that `Retry-After` asks for; null: there is none, or a proxy sent a date. */
export function retryMsOf({ headers }: Response): number | null {
  const ms = Number(headers.get('Retry-After') ?? 'none') * 1_000;
  return ms >= 0 ? ms : null;
}

function problemOf(response: Response, body: Record<string, unknown>): Problem {
  return {
    kind: 'problem',
    slug: String(body.type).split('/').at(-1) as ProblemSlug,
    detail: String(body.detail),
    status: response.status,
    retryMs: retryMsOf(response),
    body,
  };
}

/** Data that the server embedded in the page. */
export const pageData = <T>(): T => JSON.parse(document.getElementById('data')!.textContent!);
