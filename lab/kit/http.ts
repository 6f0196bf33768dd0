/** The HTTP client of single requests; the generators of bench/load make loads. */

const TIMEOUT_MS = 10_000;

/** The administrator's token, if the service has one. */
export const adminHeaders = (): Readonly<Record<string, string>> => {
  const { ADMIN_TOKEN } = process.env;
  return ADMIN_TOKEN ? { authorization: `Bearer ${ADMIN_TOKEN}` } : {};
};

/** Posts JSON, or nothing. `timeoutMs`: 10 s by default. @throws without a complete answer in time, or with the reason of `signal` */
export async function post(
  url: string,
  body: object | null,
  headers: Readonly<Record<string, string>> = {},
  { timeoutMs = TIMEOUT_MS, signal }: { readonly timeoutMs?: number; readonly signal?: AbortSignal } = {},
): Promise<{ readonly status: number; readonly text: string }> {
  const timeout = AbortSignal.timeout(timeoutMs);
  const response = await fetch(url, {
    method: 'POST',
    headers: { ...(body && { 'content-type': 'application/json' }), ...headers },
    ...(body && { body: JSON.stringify(body) }),
    signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
  });
  return { status: response.status, text: await response.text() };
}

/** The last part of a problem's type: "sold-out"; undefined: the answer is no problem. */
export const problemIn = (text: string): string | undefined =>
  /"type":"(?:[^"]*\/)?([^"/]+)"/.exec(text)?.[1];
