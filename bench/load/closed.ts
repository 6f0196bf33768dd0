/**
 * Closed loop with autocannon: each of `connections` clients sends the next attempt of one shared list when its
 * previous one was answered. Nothing here judges answers; it records them.
 *
 * A client's connection, and what moves it on:
 *
 *   opening ─▶ warm (GET /healthz, unrecorded) ─▶ attempt under way ─▶ answered ─▶ next attempt … ─▶ finished
 *                 │ refused: tried again           │ reset or timeout: the attempt stays `unknown`,
 *                 ▼                                ▼ a new connection takes the next one
 *
 * autocannon ends by a number of requests for each client, or by cutting connections at a time; neither ends a shared
 * list exactly. So when the list is at its end (or time is up) every client gets a request limit that it has reached:
 * it then ends by itself after its answer. Its `duration` bounds the wait for answers that never come.
 *
 * Hooked in at the client, not with `setupRequest` and `onResponse`: these build each request anew from all options
 * and each header map with lodash, and do not say which connection an answer came from. Read with autocannon 9.0.0:
 * a client that loses its connection keeps the lost request in its queue and half an answer in its parser, and opens
 * two connections when `end` is followed by `error`; `#retire` below clears all three. `ignoreCoordinatedOmission`
 * is refused by autocannon without a rate, and nothing is corrected without one.
 */
import type { Socket } from 'node:net';
import autocannon from 'autocannon';
import type { HistoryRecord } from '../history.ts';
import { readAnswer } from './answer.ts';
import { saleOf } from './attempts.ts';
import { AttemptRecorder, type StrangeAnswer } from './recorder.ts';

export interface ClosedLoad {
  /** Where the service answers, without a path. */
  readonly url: string;
  /** The sales that are attempted; each customer comes for one of them (attempts.ts). */
  readonly saleIds: readonly number[];
  /** Who attempts, in order. */
  readonly users: readonly string[];
  readonly connections: number;
  /** No attempt is begun after this. */
  readonly durationMs: number;
  /** An attempt without an answer after this is `unknown`; at least 1,000. */
  readonly requestTimeoutMs: number;
  /** Ends the load at once: the service is gone, or the user wants to stop. */
  readonly signal?: AbortSignal;
  /** Called a few times a second with the attempts answered so far. */
  readonly onProgress?: (completed: number) => void;
}

export interface LoadResult {
  readonly history: HistoryRecord[];
  /** Answers that the contract does not have, the first few. */
  readonly strangeAnswers: readonly StrangeAnswer[];
  /** Share of the load's time in which the generator's event loop was busy, 0 to 1; null: not known. */
  readonly utilization: number | null;
}

/** What is used of autocannon's client beyond its types. */
interface Client extends autocannon.Client {
  conn: Socket;
  /** Requests after which the client ends by itself; 0 or undefined: none. */
  responseMax: number | undefined;
  parser: { initialize(type: 'RESPONSE'): void };
  /** Requests under way on the connection, the newest last. */
  pipelinedRequests: { toArray(): unknown[] };
  getRequestBuffer(): Buffer;
  requestIterator: { recordBody(request: unknown, status: number, body: string): void };
}

const progressEveryMs = 200;
/** How often autocannon looks whether all its clients have ended. */
const sampleMs = 20;

export async function runClosedLoop(load: ClosedLoad): Promise<LoadResult> {
  const list = new SharedList(load);
  const progress = setInterval(() => load.onProgress?.(list.recorder.completed), progressEveryMs);
  const idleBefore = performance.eventLoopUtilization();
  const timeUp = setTimeout(() => list.close(), load.durationMs);
  const run = autocannon({
    url: load.url,
    connections: Math.min(load.connections, load.users.length),
    pipelining: 1,
    timeout: load.requestTimeoutMs / 1_000,
    // The last attempt may begin just before time is up, and may then take its whole timeout.
    duration: (load.durationMs + load.requestTimeoutMs) / 1_000 + 1,
    sampleInt: sampleMs,
    skipAggregateResult: true,
    setupClient: (client) => new Lane(client as Client, list, load.url),
  }) as unknown as autocannon.Instance & PromiseLike<autocannon.Result>;
  const abort = (): void => {
    list.close();
    run.stop();
  };
  load.signal?.addEventListener('abort', abort);
  if (load.signal?.aborted) abort();
  try {
    await run;
  } finally {
    clearInterval(progress);
    clearTimeout(timeUp);
    load.signal?.removeEventListener('abort', abort);
  }
  const { utilization } = performance.eventLoopUtilization(idleBefore);
  return { history: list.recorder.records(), strangeAnswers: list.recorder.strangeAnswers, utilization };
}

/** The attempts that nobody has taken, and the clients that take them. */
class SharedList {
  readonly recorder: AttemptRecorder;
  readonly #requests: (attempt: number) => Buffer;
  readonly #clients: Client[] = [];
  readonly #length: number;
  #next = 0;
  #closed = false;

  constructor(load: ClosedLoad) {
    this.recorder = new AttemptRecorder(load.saleIds, load.users);
    this.#length = load.users.length;
    this.#requests = purchaseRequests(load);
  }

  join(client: Client): void {
    this.#clients.push(client);
  }

  /** The next attempt; null when there is none, or when no more may begin. */
  take(): number | null {
    if (this.#closed) return null;
    const attempt = this.#next;
    this.#next += 1;
    if (this.#next >= this.#length) this.close();
    return attempt;
  }

  request(attempt: number): Buffer {
    return this.#requests(attempt);
  }

  /** No more attempts: every client ends as soon as its present request is answered or given up. */
  close(): void {
    this.#closed = true;
    for (const client of this.#clients) client.responseMax = 1;
  }
}

/** One client: knows which attempt its connection is busy with. */
class Lane {
  readonly #client: Client;
  readonly #list: SharedList;
  readonly #warmUp: Buffer;
  #conn: Socket | undefined;
  #connected = false;
  /** The attempt under way; null: none, or the unrecorded first request. */
  #attempt: number | null = null;

  constructor(client: Client, list: SharedList, url: string) {
    this.#client = client;
    this.#list = list;
    this.#warmUp = Buffer.from(`GET /healthz HTTP/1.1\r\nHost: ${new URL(url).host}\r\n\r\n`);
    list.join(client);
    client.getRequestBuffer = () => this.#send();
    client.requestIterator.recordBody = (_request, status, body) => this.#receive(status, body);
  }

  /** Called once for each request, right before it is written to `client.conn`. */
  #send(): Buffer {
    if (this.#client.conn !== this.#conn) this.#retire();
    const isFirst = this.#conn === undefined;
    this.#watch(this.#client.conn);
    if (isFirst) return this.#warmUp;
    // An attempt that is still here was never sent: its connection was refused.
    this.#attempt ??= this.#list.take();
    if (this.#attempt === null) return this.#warmUp;
    this.#list.recorder.invoked(this.#attempt);
    return this.#list.request(this.#attempt);
  }

  #receive(status: number, body: string): void {
    if (this.#attempt === null) return;
    this.#list.recorder.answered(this.#attempt, status, readAnswer(status, body), body);
    this.#attempt = null;
  }

  #watch(conn: Socket): void {
    if (conn === this.#conn) return;
    this.#conn = conn;
    this.#connected = false;
    conn.once('connect', () => {
      if (conn === this.#conn) this.#connected = true;
    });
  }

  /** Leaves nothing of the lost connection that could be taken for an answer to a later attempt. */
  #retire(): void {
    const lost = this.#conn;
    if (lost === undefined) return;
    lost.removeAllListeners('data').removeAllListeners('end').removeAllListeners('error');
    lost.on('error', () => {});
    lost.destroy();
    this.#client.parser.initialize('RESPONSE');
    const underWay = this.#client.pipelinedRequests.toArray();
    underWay.splice(0, underWay.length - 1);
    if (this.#attempt === null) return;
    if (this.#connected) this.#attempt = null;
    else this.#list.recorder.withdrawn(this.#attempt);
  }
}

/** Builds the whole HTTP request of an attempt. */
function purchaseRequests({ url, saleIds, users }: ClosedLoad): (attempt: number) => Buffer {
  const tail = ` HTTP/1.1\r\nHost: ${new URL(url).host}\r\nContent-Type: application/json\r\n`;
  return (attempt) => {
    const user = users[attempt] ?? '';
    const body = `{"userId":"${user}"}`;
    const head = `POST /sales/${saleOf(saleIds, user)}/orders${tail}`;
    return Buffer.from(`${head}Content-Length: ${body.length}\r\n\r\n${body}`, 'latin1');
  };
}
