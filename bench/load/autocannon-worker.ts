/**
 * A worker of autocannon. Each client has its requests from here, ready to be written. A client's connection:
 *
 *   opening ─▶ attempt in flight ─▶ answered ─▶ next attempt … ─▶ end of the load
 *                 │ reset or timeout: the attempt stays unknown, a new connection takes the next one
 *
 * Hooked in at the client, not with `setupRequest` and `onResponse`: these build each request anew from all options and
 * each header map with lodash, and do not say which connection an answer came from. Read with autocannon 9.0.0: a client
 * that loses its connection keeps the lost request in its queue and half an answer in its parser, and opens two
 * connections when `end` is followed by `error`; `#retire` clears all three.
 */
import { writeFile } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { createHistogram } from 'node:perf_hooks';
import autocannon from 'autocannon';
import { readAnswer } from './answer.ts';
import type { FromWorker, ToWorker, WorkerLoad, WorkerNumbers } from './autocannon.ts';
import { answerTimeoutMs, firstCustomer, requestParts } from './rate.ts';

/** What is used of autocannon's client beyond its types. */
interface Client extends autocannon.Client {
  conn: Socket;
  parser: { initialize(type: 'RESPONSE'): void };
  /** Requests in flight on the connection, the newest last. */
  pipelinedRequests: { toArray(): unknown[] };
  getRequestBuffer(): Buffer;
  requestIterator: { recordBody(request: unknown, status: number, body: string): void };
}

const tellEveryMs = 100;
/** Ends autocannon when nothing else does, in seconds. */
const atMostS = 24 * 3_600;
const strangeLength = 300;

const send = (message: FromWorker): void => void process.send?.(message);
const nowUs = (): number => Math.round(Number(process.hrtime.bigint()) / 1_000);

process.on('disconnect', () => process.exit(0));
process.once('message', (message: ToWorker) => {
  if (message.kind !== 'load') return;
  process.once('message', () => void fire(message.load).then((numbers) => send({ kind: 'done', numbers })));
  send({ kind: 'ready' });
});

async function fire(load: WorkerLoad): Promise<WorkerNumbers> {
  const attempts = new Attempts(load);
  const cpuBefore = process.cpuUsage();
  const end = (): void => {
    attempts.end();
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
    setupClient: (client) => new Lane(client as Client, attempts),
  }) as unknown as autocannon.Instance & PromiseLike<{ readonly errors?: number }>;
  const told = setInterval(() => {
    send({ kind: 'sent', sent: attempts.sent });
    if (load.attempts !== null && attempts.sent >= load.attempts) end();
  }, tellEveryMs);
  const timer = load.durationMs === null ? undefined : setTimeout(end, load.durationMs);
  const { errors = 0 } = await run;
  clearInterval(told);
  clearTimeout(timer);
  const { user, system } = process.cpuUsage(cpuBefore);
  if (load.lines !== null) await writeFile(load.lines, attempts.lines());
  return { ...attempts.numbers(errors), cpuS: (user + system) / 1e6 };
}

/** Counts and records what all clients do. */
class Attempts {
  sent = 0;
  readonly #load: WorkerLoad;
  readonly #parts: readonly (readonly [string, string])[];
  readonly #beganMs = performance.now();
  readonly #latencyUs = createHistogram();
  readonly #lines: string[] = [];
  #endedMs: number | null = null;
  #answers = 0;
  #refused = 0;

  constructor(load: WorkerLoad) {
    this.#load = load;
    this.#parts = load.saleIds.map((saleId) => requestParts(load.url, saleId, load.prefix));
  }

  /** @returns the number of the attempt, and its request */
  begin(): { readonly n: number; readonly beganUs: number; readonly request: Buffer } {
    const n = this.#load.first + this.sent * this.#load.step;
    this.sent++;
    const [head, tail] = this.#parts[n % this.#parts.length] ?? ['', ''];
    const beganUs = nowUs();
    if (this.#load.lines !== null) this.#lines.push(`${n} ${beganUs}`);
    return { n, beganUs, request: Buffer.from(`${head}${firstCustomer + n}${tail}`, 'latin1') };
  }

  answered(n: number, beganUs: number, status: number, body: string): void {
    const us = nowUs();
    if (this.#load.lines !== null) {
      const { outcome, orderId } = readAnswer(status, body);
      const strange = outcome === 'unexpected' ? ` ${JSON.stringify(body.slice(0, strangeLength))}` : '';
      this.#lines.push(`${n} ${us} ${status} ${outcome} ${orderId ?? '-'}${strange}`);
    }
    if (this.#endedMs !== null) return;
    this.#answers++;
    if (status >= 400) this.#refused++;
    this.#latencyUs.record(Math.max(1, us - beganUs));
  }

  end(): void {
    this.#endedMs ??= performance.now();
  }

  lines(): string {
    return this.#lines.map((line) => `${line}\n`).join('');
  }

  numbers(unanswered: number): Omit<WorkerNumbers, 'cpuS'> {
    const at = (percent: number): number => this.#latencyUs.percentile(percent) / 1_000;
    return {
      durationMs: (this.#endedMs ?? performance.now()) - this.#beganMs,
      answers: this.#answers,
      refused: this.#refused,
      unanswered,
      latencyMs: this.#answers === 0 ? null : { p50: at(50), p99: at(99) },
    };
  }
}

/** One client: knows which attempt its connection is busy with. */
class Lane {
  readonly #client: Client;
  readonly #attempts: Attempts;
  #conn: Socket | undefined;
  #current: { readonly n: number; readonly beganUs: number } | null = null;

  constructor(client: Client, attempts: Attempts) {
    this.#client = client;
    this.#attempts = attempts;
    client.getRequestBuffer = () => this.#send();
    client.requestIterator.recordBody = (_request, status, body) => this.#receive(status, body);
  }

  /** Called once for each request, right before it is written to `client.conn`. */
  #send(): Buffer {
    if (this.#client.conn !== this.#conn) this.#retire();
    const attempt = this.#attempts.begin();
    this.#current = attempt;
    return attempt.request;
  }

  #receive(status: number, body: string): void {
    if (this.#current === null) return;
    this.#attempts.answered(this.#current.n, this.#current.beganUs, status, body);
    this.#current = null;
  }

  /** Leaves nothing of a lost connection that could be taken for an answer to a later attempt. */
  #retire(): void {
    const lost = this.#conn;
    this.#conn = this.#client.conn;
    if (lost === undefined) return;
    lost.removeAllListeners('data').removeAllListeners('end').removeAllListeners('error');
    lost.on('error', () => {});
    lost.destroy();
    this.#client.parser.initialize('RESPONSE');
    const inFlight = this.#client.pipelinedRequests.toArray();
    inFlight.splice(0, inFlight.length - 1);
  }
}
