/**
 * One call of the service: it repeats a request until there is an answer.
 *
 *   try ──▶ a result, or a refusal ──────────────────────────────▶ the answer
 *    ▲ ├──▶ busy, too-many-requests, too-early: nothing happened ──▶ wait, or after the deadline the answer
 *    │ └──▶ no answer, 5xx, or not the service's: unknown ─────────▶ wait, or after the deadline a GaveUpError
 *    └───────────────────── wait: Retry-After, and a backoff with full jitter ◀──┘
 *
 * Full jitter is from https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/: customers who were refused together do
 * not repeat together.
 */

/** What every call takes. */
export interface CallOptions {
  /** How long to repeat, milliseconds. */
  readonly withinMs?: number | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Sent as `Authorization: Bearer`, instead of the client's. */
  readonly token?: string | undefined;
}

/** What a call named, for its error. */
export type Ids = Readonly<Record<string, string | number>>;

export interface Exchange {
  readonly method: string;
  readonly url: string;
  /** Called for each try: a signature has the time of its try. */
  headers(): Promise<Record<string, string>>;
  /** JSON. */
  readonly body: string | null;
  /** A result has one of these members: another body is not the service's. Empty: a result is a 204. */
  readonly has: readonly string[];
  readonly ids: Ids;
  readonly options: CallOptions;
  readonly withinMs: number;
  readonly tryMs: number;
  readonly fetch: typeof globalThis.fetch;
}

export interface Received {
  readonly status: number;
  readonly body: Readonly<Record<string, unknown>>;
  /** Of a problem; null: it is a result. */
  readonly slug: string | null;
  readonly mayHaveHappened: boolean;
}

/**
 * The time is over, or the signal has fired, and there is no answer. `cause` is why the last try had none, or the reason of the signal.
 *
 * If `mayHaveHappened`, at least one request may have taken effect, or may do so while it is on its way; nothing is known until a later
 * call is answered. For a purchase call again with the same customer, or `getOrderOfUser`; for administration call again with
 * `ids.idempotencyKey` within 24 hours; a payment may be reported again as it is.
 */
export class GaveUpError extends Error {
  override readonly name = 'GaveUpError';
  readonly code = 'ERR_STAMPEDE_GAVE_UP';
  readonly mayHaveHappened: boolean;
  readonly tries: number;
  /** What the call named; of a purchase also `orderId`, if each try without a definite answer reported it: that of the order, if it exists. */
  readonly ids: Ids;
  constructor(what: string, ids: Ids, tries: number, mayHaveHappened: boolean, cause: unknown) {
    const known = mayHaveHappened ? 'It may have taken effect.' : 'Nothing happened.';
    super(`No answer to ${what} after ${tries} tries. ${known}`, { cause });
    this.ids = ids;
    this.tries = tries;
    this.mayHaveHappened = mayHaveHappened;
  }
}

const NOTHING_HAPPENED: ReadonlySet<string | null> = new Set(['busy', 'too-many-requests', 'too-early']);
const BACKOFF_MS = [500, 1_000, 2_000, 4_000, 8_000, 10_000] as const;

/** Calls once, after `ms` or when the signal fires. @returns cancels it */
function alarm(ms: number, signal: AbortSignal | undefined, ring: () => void): () => void {
  const cancel = () => {
    clearTimeout(timer);
    signal?.removeEventListener('abort', fire);
  };
  const fire = () => {
    cancel();
    ring();
  };
  const timer = setTimeout(fire, Math.min(ms, 2 ** 31 - 1)); // it takes no more
  signal?.addEventListener('abort', fire);
  if (signal?.aborted) fire();
  return cancel;
}

/** @returns milliseconds; null: the header is missing, or neither seconds nor a date */
function retryAfterMs(header: string | null): number | null {
  const ms = /^\d+$/.test(header ?? '') ? Number(header) * 1_000 : Date.parse(header ?? '') - Date.now();
  return ms >= 0 ? ms : null;
}

/** What one request brought. Status 0: no whole answer came; a body that is not JSON is empty. */
interface Reply extends Pick<Received, 'status' | 'body'> {
  readonly afterMs: number | null;
  /** Why it is no result. */
  readonly cause: unknown;
}

function parsed(text: string): Reply['body'] {
  try {
    return Object(JSON.parse(text));
  } catch {
    return {};
  }
}

async function attempt(exchange: Exchange, tryMs: number): Promise<Reply> {
  const { url, method, body, fetch, options } = exchange;
  const limit = new AbortController();
  const late = () => limit.abort(options.signal?.reason ?? new Error(`no answer within ${tryMs} ms`));
  const cancel = alarm(tryMs, options.signal, late);
  try {
    const headers = await exchange.headers();
    // Followed, a redirect would turn a POST into a GET.
    const response = await fetch(url, { method, headers, body, signal: limit.signal, redirect: 'error' });
    const text = await response.text();
    const cause = new Error(`the answer was ${response.status} ${text.slice(0, 200)}`);
    const afterMs = retryAfterMs(response.headers.get('retry-after'));
    return { status: response.status, body: parsed(text), afterMs, cause };
  } catch (cause) {
    return { status: 0, body: {}, afterMs: null, cause };
  } finally {
    cancel();
  }
}

/**
 * Sends a request until it is answered.
 * @throws GaveUpError when the time is over; TypeError for a request that cannot be sent
 */
export async function send(exchange: Exchange): Promise<Received> {
  const { url, method, options } = exchange;
  const { signal, withinMs = exchange.withinMs } = options;
  if (!(withinMs > 0)) throw new TypeError(`withinMs must be more than 0, not ${withinMs}`);
  new Request(url, { method, headers: await exchange.headers(), body: exchange.body }); // throws for what no try could send
  const untilMs = performance.now() + withinMs;
  const lastMs = untilMs - Math.min(exchange.tryMs, 1_000, withinMs / 2); // a repeat that started later would have no time for an answer
  let ids: Ids = exchange.ids;
  let mayHaveHappened = false;
  for (let tries = 0; ; ) {
    const gaveUp = (cause: unknown) =>
      new GaveUpError(`${method} ${new URL(url).pathname}`, ids, tries, mayHaveHappened, cause);
    if (signal?.aborted) throw gaveUp(signal.reason);
    const tryMs = Math.min(exchange.tryMs, Math.max(0, untilMs - performance.now()));
    const { status, body, afterMs, cause } = await attempt(exchange, tryMs);
    tries++;
    const { has } = exchange;
    const isResult = has.length === 0 ? status === 204 : status < 300 && has.some((name) => name in body);
    // Null: there was no answer, or something in between answered.
    const slug = /^\/problems\/([\w-]+)$/.exec(String(body.type))?.[1] ?? null;
    const isLater = NOTHING_HAPPENED.has(slug);
    if (isResult || (slug !== null && !isLater && status < 500))
      return { status, body, slug, mayHaveHappened };
    if (!isLater) {
      const isNamed = slug === 'unknown-outcome' && typeof body.orderId === 'string';
      const named = isNamed ? { orderId: String(body.orderId), ...exchange.ids } : exchange.ids;
      ids = mayHaveHappened && named.orderId !== ids.orderId ? exchange.ids : named;
      mayHaveHappened ||= method !== 'GET';
    }
    const waitMs = (afterMs ?? 0) + Math.random() * (BACKOFF_MS[tries - 1] ?? BACKOFF_MS[5]);
    if (performance.now() + waitMs < lastMs) {
      await new Promise<void>((resolve) => void alarm(waitMs, signal, resolve));
      if (performance.now() < lastMs) continue; // otherwise the timer was late
    }
    if (isLater && !mayHaveHappened) return { status, body, slug, mayHaveHappened };
    throw gaveUp(signal?.aborted ? signal.reason : cause);
  }
}
