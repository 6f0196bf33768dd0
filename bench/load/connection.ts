/**
 * One connection of the open loop, with one attempt at a time: an undici `Client` each instead of a `Pool`, which scans its
 * connections (42 µs of CPU a request with 512 of them, instead of 31) and hides waiting in its queue.
 */
import { Client, type Dispatcher } from 'undici';

interface Place {
  /** Where the service answers, without a path. */
  readonly url: string;
  readonly saleId: number;
  /** For an answer, and for a part of it; undici checks every half second. */
  readonly requestTimeoutMs: number;
}

/** What happens to the attempt of a connection. */
export interface Events {
  /** Its request is written now. */
  sent(attempt: number): void;
  /** Its answer is complete. */
  answered(attempt: number, status: number, body: string): void;
  /** It was answered, or never will be. Called from inside undici's parser: the next `send` must wait for its return. */
  finished(attempt: number, connection: Connection): void;
}

export class Connection implements Dispatcher.DispatchHandler {
  readonly #client: Client;
  readonly #events: Events;
  readonly #request: Dispatcher.DispatchOptions;
  #attempt = 0;
  #status = 0;
  #body = '';

  constructor({ url, saleId, requestTimeoutMs: timeout }: Place, events: Events) {
    this.#events = events;
    const timeouts = { headersTimeout: timeout, bodyTimeout: timeout, connectTimeout: timeout };
    this.#client = new Client(url, { pipelining: 1, ...timeouts });
    const headers = ['content-type', 'application/json'];
    this.#request = { path: `/sales/${saleId}/orders`, method: 'POST', headers, blocking: false };
  }

  /** Connects with a request that is not recorded. A server that is missing is no error: attempts will find none. */
  async open(signal: AbortSignal | undefined): Promise<void> {
    const answer = await this.#client.request({ path: '/healthz', method: 'GET', signal }).catch(() => null);
    await answer?.body.dump().catch(() => {});
  }

  async close(): Promise<void> {
    await this.#client.destroy();
  }

  send(attempt: number, user: string): void {
    this.#attempt = attempt;
    this.#body = '';
    this.#request.body = `{"userId":"${user}"}`;
    this.#client.dispatch(this.#request, this);
  }

  // undici calls these.
  onRequestStart(): void {
    this.#events.sent(this.#attempt);
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number): void {
    this.#status = status;
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#body += chunk.toString();
  }

  onResponseEnd(): void {
    this.#events.answered(this.#attempt, this.#status, this.#body);
    this.#events.finished(this.#attempt, this);
  }

  onResponseError(): void {
    this.#events.finished(this.#attempt, this);
  }
}
