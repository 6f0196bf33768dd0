/**
 * A process of autocannon, which tells the bench what it counted. Each client gets its requests from here, ready to be
 * written: autocannon's own way to vary a request builds it anew from all options (bench/load/closed.ts says more).
 */
import { createHistogram } from 'node:perf_hooks';
import autocannon from 'autocannon';
import { answerTimeoutMs, firstCustomer, type LoadNumbers, requestParts } from '../load.ts';
import type { Cannon, FromCannon, ToCannon } from './cannon-protocol.ts';

/** What is used of autocannon's client beyond its types. */
type Client = autocannon.Client & { getRequestBuffer(): Buffer };

const tellEveryMs = 100;
/** Ends autocannon when nothing else does, in seconds. */
const atMostS = 24 * 3_600;

process.on('disconnect', () => process.exit(0));
process.once('message', (message: ToCannon) => {
  if (message.kind !== 'load') return;
  process.once('message', () => void fire(message.load).then((numbers) => tell({ kind: 'done', numbers })));
  tell({ kind: 'ready' });
});

function tell(message: FromCannon): void {
  process.send?.(message);
}

async function fire(load: Cannon): Promise<LoadNumbers> {
  const count = new Count();
  const requests = requestsOf(load);
  const end = (): void => {
    if (count.endedMs === null) count.endedMs = performance.now();
    run.stop();
  };
  const run = autocannon({
    url: load.url,
    connections: load.connections,
    pipelining: 1,
    timeout: answerTimeoutMs / 1_000,
    duration: atMostS,
    sampleInt: 20,
    skipAggregateResult: true,
    setupClient: (client) => {
      (client as Client).getRequestBuffer = () => {
        count.sent++;
        return requests(count.sent);
      };
      client.on('response', (status, _bytes, durationMs) => {
        if (count.endedMs !== null) return;
        count.answered(status, durationMs);
        if (load.attempts !== null && count.sent >= load.attempts) end();
      });
    },
  }) as unknown as autocannon.Instance & PromiseLike<{ readonly errors?: number }>;
  const told = setInterval(() => tell({ kind: 'sent', sent: count.sent }), tellEveryMs);
  const timer = load.durationMs === null ? undefined : setTimeout(end, load.durationMs);
  const { errors = 0 } = await run;
  clearInterval(told);
  clearTimeout(timer);
  tell({ kind: 'sent', sent: count.sent });
  return count.numbers(errors);
}

/** Builds the whole HTTP request of the n-th attempt. */
function requestsOf({ url, sales, customers }: Cannon): (attempt: number) => Buffer {
  const parts = Array.from({ length: sales.count }, (_, index) => {
    return requestParts(url, sales.first + index, customers);
  });
  return (attempt) => {
    const [head, tail] = parts[attempt % sales.count] ?? ['', ''];
    return Buffer.from(`${head}${firstCustomer + attempt}${tail}`, 'latin1');
  };
}

class Count {
  readonly #beganMs = performance.now();
  readonly #latencyUs = createHistogram();
  sent = 0;
  endedMs: number | null = null;
  #answers = 0;
  #refused = 0;

  answered(status: number, durationMs: number): void {
    this.#answers++;
    if (status >= 400) this.#refused++;
    this.#latencyUs.record(Math.max(1, Math.round(durationMs * 1_000)));
  }

  numbers(unanswered: number): LoadNumbers {
    const at = (percent: number): number => this.#latencyUs.percentile(percent) / 1_000;
    return {
      durationMs: (this.endedMs ?? performance.now()) - this.#beganMs,
      answers: this.#answers,
      refused: this.#refused,
      unanswered,
      latencyMs: this.#answers === 0 ? null : { p50: at(50), p99: at(99) },
    };
  }
}
