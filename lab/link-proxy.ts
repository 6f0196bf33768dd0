/**
 * TCP proxies on the loopback, in another process: bytes that pass here must not wait for the load generator.
 *
 * Requests are delayed by the whole round-trip time and answers not at all: a client waits as long as if each way took
 * half of it, and the delay is late only once. Chunks leave in the order in which they came, each at its own due time, so
 * the delay does not limit how much is in flight; beyond `heldBytes` a sender has to wait. The end of a stream and a reset
 * travel as chunks do, behind what was sent before them.
 *
 * A chunk is never early. One timer of whole milliseconds serves them all. Measured on two shared cores, medians of a PING:
 * 0.05 ms direct, 0.4 ms through the proxy, 1.6 ms with a delay of 1 ms, 5.8 ms with 5 ms.
 */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import type { FromProxy, RoundTrips, ToProxy } from './link.ts';

/** Of one connection: at 100 ms it still passes 160 MB/s. */
const heldBytes = 16 * 1_024 * 1_024;

/** Holds callbacks of all connections back, first in, first out. */
class DelayLine {
  /** Of those that come from now on; none overtakes one that came before. */
  delayMs = 0;
  readonly #waiting: { readonly dueMs: number; readonly leave: () => void }[] = [];

  enter(leave: () => void): void {
    const isEmpty = this.#waiting.length === 0;
    if (this.delayMs === 0 && isEmpty) {
      leave();
      return;
    }
    this.#waiting.push({ dueMs: performance.now() + this.delayMs, leave });
    if (isEmpty) setTimeout(this.#release, Math.ceil(this.delayMs));
  }

  readonly #release = (): void => {
    const nowMs = performance.now();
    const later = this.#waiting.findIndex(({ dueMs }) => dueMs > nowMs);
    const due = later === -1 ? this.#waiting.length : later;
    for (const { leave } of this.#waiting.slice(0, due)) leave();
    this.#waiting.splice(0, due); // behind the loop: what enters meanwhile finds its timer still running
    const [first] = this.#waiting;
    if (first !== undefined) setTimeout(this.#release, Math.ceil(first.dueMs - performance.now()));
  };
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

/** Two proxies that share the delay of requests. */
class Proxies {
  readonly requests = new DelayLine();
  readonly #answers = new DelayLine();
  /** Answers that were the first after a request on their connection. */
  trips = { redis: 0, postgres: 0 };
  ports = { redis: 0, postgres: 0 };

  async open(stores: NonNullable<ToProxy['open']>): Promise<void> {
    for (const name of ['redis', 'postgres'] as const) {
      const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
        const store = connect({ ...stores[name], allowHalfOpen: true, noDelay: true });
        this.#join(client, store, name);
      });
      await once(server.listen(0, '127.0.0.1'), 'listening');
      this.ports[name] = (server.address() as AddressInfo).port;
    }
  }

  #join(client: Socket, store: Socket, name: keyof RoundTrips): void {
    let isAsked = false;
    client.on('data', () => {
      isAsked = true;
    });
    store.on('data', () => {
      if (isAsked) this.trips[name]++;
      isAsked = false;
    });
    forward(client, store, this.requests);
    forward(store, client, this.#answers);
  }
}

const proxies = new Proxies();
process.on('disconnect', () => process.exit(0));
process.on('message', async ({ number, open, delayMs, reset }: ToProxy) => {
  if (open !== undefined) await proxies.open(open);
  if (delayMs !== undefined) proxies.requests.delayMs = delayMs;
  if (reset) proxies.trips = { redis: 0, postgres: 0 };
  const { ports, trips } = proxies;
  process.send?.({ kind: 'done', number, ports, trips } satisfies FromProxy);
});
