/**
 * One connection of the open loop, with one attempt at a time: an undici `Client`, not a `Pool`, which would scan its
 * connections (42 µs of CPU a request with 512 of them, instead of 31) and hide waiting in its queue.
 */
import { Client, type Dispatcher } from 'undici';

export interface Connection {
  /** Connects with a request that is not recorded. @throws when there is no server; attempts then find none either */
  open(signal: AbortSignal | undefined): Promise<void>;
  send(attempt: number, body: string): void;
  close(): Promise<void>;
}

/** What happens to the attempt of a connection. */
export interface Events {
  /** Its request is written now. */
  sent(attempt: number): void;
  /** Its answer is complete. */
  answered(attempt: number, status: number, body: string): void;
  /** The attempt was answered, or never will be. Called from inside undici's parser: the next `send` must wait for its return. */
  finished(attempt: number, connection: Connection): void;
}

/** @param timeoutMs to connect, for headers, and for each part of a body; undici checks every 0.5 s */
export function connectionTo(url: string, path: string, timeoutMs: number, events: Events): Connection {
  const timeouts = { headersTimeout: timeoutMs, bodyTimeout: timeoutMs, connectTimeout: timeoutMs };
  const client = new Client(url, { pipelining: 1, ...timeouts });
  const headers = ['content-type', 'application/json'];
  const request: Dispatcher.DispatchOptions = { path, method: 'POST', headers, blocking: false };
  let [current, status, answer] = [0, 0, ''];
  const connection: Connection = {
    async open(signal) {
      const { body } = await client.request({ path: '/healthz', method: 'GET', signal });
      await body.dump();
    },
    send(attempt, body) {
      [current, answer] = [attempt, ''];
      request.body = body;
      client.dispatch(request, handler);
    },
    close: () => client.destroy(),
  };
  const handler: Dispatcher.DispatchHandler = {
    onRequestStart: () => events.sent(current),
    onResponseStart(_controller, code) {
      status = code;
    },
    onResponseData(_controller, chunk) {
      answer += chunk.toString();
    },
    onResponseEnd() {
      events.answered(current, status, answer);
      events.finished(current, connection);
    },
    onResponseError: () => events.finished(current, connection),
  };
  return connection;
}
