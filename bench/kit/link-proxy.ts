/**
 * TCP proxies on the loopback, in another process: bytes that pass here must not wait for the load generator.
 *
 * Requests are delayed by the whole round-trip time and answers not at all: a client waits as long as if each way took
 * half of it, and the delay is late only once. Chunks leave in the order in which they came, each at its own due time, so
 * the delay does not limit how much is in flight; beyond `heldBytes` a sender has to wait. The end of a stream and a reset
 * travel as chunks do, behind what was sent before them.
 *
 * A chunk is never early. One timer of whole milliseconds serves them all. Measured on two shared cores, medians of a PING:
 * 0.05 ms direct, 0.4 ms through the proxy, 1.6 ms with a delay of 1 ms, 5.8 ms with 5 ms. Spinning for the last part of a
 * millisecond (0.02 ms late, but a whole processor) and a thread that sleeps by the microsecond (no better) were rejected.
 */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import type { Endpoint, FromProxy, ToProxy } from './link.ts';

/** Of one connection: at 100 ms it still passes 160 MB/s. */
const heldBytes = 16 * 1_024 * 1_024;

/** Holds callbacks of all connections back, first in, first out. */
class DelayLine {
  /** Of those that come from now on; none overtakes one that came before. */
  delayMs = 0;
  readonly #waiting: { readonly dueMs: number; readonly leave: () => void }[] = [];
  #timed = false;

  enter(leave: () => void): void {
    if (this.delayMs === 0 && this.#waiting.length === 0) {
      leave();
      return;
    }
    this.#waiting.push({ dueMs: performance.now() + this.delayMs, leave });
    if (!this.#timed) this.#wait(this.delayMs);
  }

  #wait(ms: number): void {
    this.#timed = true;
    setTimeout(() => this.#release(), Math.ceil(ms));
  }

  #release(): void {
    const nowMs = performance.now();
    const next = this.#waiting.findIndex(({ dueMs }) => dueMs > nowMs);
    const due = this.#waiting.splice(0, next === -1 ? this.#waiting.length : next);
    for (const { leave } of due) leave();
    const [first] = this.#waiting;
    if (first === undefined) this.#timed = false;
    else this.#wait(first.dueMs - performance.now());
  }
}

/** One direction of a connection: what `source` sends goes to `target`, in order. */
function forward(source: Socket, target: Socket, line: DelayLine): void {
  let held = 0;
  const fits = (): boolean => held < heldBytes && !target.writableNeedDrain;
  source.on('data', (chunk: Buffer) => {
    held += chunk.length;
    line.enter(() => {
      held -= chunk.length;
      if (!target.destroyed) target.write(chunk);
      if (fits()) source.resume();
    });
    if (!fits()) source.pause();
  });
  target.on('drain', () => {
    if (fits()) source.resume();
  });
  source.on('end', () => line.enter(() => target.end()));
  // A server that refuses, a reset: the other side sees a reset, too.
  source.on('error', () => line.enter(() => void (target.destroyed || target.resetAndDestroy())));
}

class StoreProxy {
  /** Answers that were the first after a request on their connection. */
  trips = 0;
  readonly #to: Endpoint;
  readonly #requests: DelayLine;
  readonly #answers = new DelayLine();

  constructor(to: Endpoint, requests: DelayLine) {
    this.#to = to;
    this.#requests = requests;
  }

  /** @returns its port */
  async listen(): Promise<number> {
    const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => this.#accept(client));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return (server.address() as AddressInfo).port;
  }

  #accept(client: Socket): void {
    const store = connect({ ...this.#to, allowHalfOpen: true, noDelay: true });
    let isAsked = false;
    client.on('data', () => {
      isAsked = true;
    });
    store.on('data', () => {
      if (isAsked) this.trips++;
      isAsked = false;
    });
    forward(client, store, this.#requests);
    forward(store, client, this.#answers);
  }
}

const send = (message: FromProxy): void => void process.send?.(message);

process.on('disconnect', () => process.exit(0));
process.once('message', async ({ postgres, redis }: Extract<ToProxy, { do: 'open' }>) => {
  const line = new DelayLine();
  const proxies = { postgres: new StoreProxy(postgres, line), redis: new StoreProxy(redis, line) };
  process.on('message', (order: ToProxy) => {
    if (order.do === 'open') return;
    if (order.do === 'delay') line.delayMs = order.rttMs;
    if (order.do === 'reset') for (const proxy of Object.values(proxies)) proxy.trips = 0;
    const trips = { redis: proxies.redis.trips, postgres: proxies.postgres.trips };
    send({ done: order.do, number: order.number, trips });
  });
  send({ done: 'open', postgres: await proxies.postgres.listen(), redis: await proxies.redis.listen() });
});
