/**
 * One connection of the open loop, with one attempt at a time. undici's `dispatch` and a handler that lives as long as
 * the connection: a request costs 36 µs of CPU, of which its older, undocumented handler names would save 8.
 */
import { Client, type Dispatcher } from 'undici';
import { never } from './sending.ts';

interface LaneLoad {
  /** Where the service answers, without a path. */
  readonly url: string;
  readonly saleId: number;
  /** How long an answer, and a part of it, may take; undici looks only every half second. */
  readonly requestTimeoutMs: number;
}

/** Whom a lane tells what happens to its attempt. */
export interface Lanekeeper {
  /** The attempt's request is written now. */
  sent(attempt: number): void;
  /** The attempt's answer is complete now. */
  answered(attempt: number, status: number, body: string): void;
  /**
   * The lane is free again: its attempt was answered, or never will be. Called from inside undici's parser, so the next
   * attempt must wait until the caller has returned.
   */
  finished(lane: Lane, attempt: number): void;
}

/** One connection: knows which attempt it is busy with. */
export class Lane implements Dispatcher.DispatchHandler {
  readonly #client: Client;
  readonly #keeper: Lanekeeper;
  readonly #request: Dispatcher.DispatchOptions;
  #attempt = never;
  #status = 0;
  #body = '';

  constructor(load: LaneLoad, keeper: Lanekeeper) {
    this.#keeper = keeper;
    this.#client = new Client(load.url, {
      pipelining: 1,
      headersTimeout: load.requestTimeoutMs,
      bodyTimeout: load.requestTimeoutMs,
      connectTimeout: load.requestTimeoutMs,
    });
    this.#request = {
      path: `/sales/${load.saleId}/orders`,
      method: 'POST',
      headers: ['content-type', 'application/json'],
      blocking: false,
    };
  }

  /** Opens the connection with a request that is not recorded. */
  async open(): Promise<void> {
    try {
      const { body } = await this.#client.request({ path: '/healthz', method: 'GET' });
      await body.dump();
    } catch {
      // The first attempt on this lane tries again, and tells.
    }
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

  /** undici calls it right before it writes the request; the names of these four are undici's. */
  onRequestStart(): void {
    this.#keeper.sent(this.#attempt);
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number): void {
    this.#status = status;
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#body += chunk.toString();
  }

  onResponseEnd(): void {
    this.#keeper.answered(this.#attempt, this.#status, this.#body);
    this.#keeper.finished(this, this.#attempt);
  }

  onResponseError(): void {
    this.#keeper.finished(this, this.#attempt);
  }
}
