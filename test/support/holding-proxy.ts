/**
 * A TCP proxy on the loopback that loses nothing: it keeps bytes back and passes them on later, in their order, as a
 * network does that stalls and recovers. (One that loses bytes is in proxy.ts.)
 */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

/** One direction of one connection. */
interface Way {
  readonly to: Socket;
  /** What was passed on, for looking into it afterwards. */
  readonly passed: string[];
  /** In their order; while there are some, what comes is put behind them. */
  readonly kept: Buffer[];
}

/** A request that is waited for, and kept when it comes. */
interface Wanted {
  readonly marker: string;
  readonly came: (request: string) => void;
}

export class HoldingProxy {
  /** Every byte takes so much longer, in each direction. */
  delayMs = 0;
  #holding = false;
  #wanted: Wanted | undefined;
  readonly #port: number;
  readonly #server: Server;
  readonly #ways = new Set<Way>();
  readonly #clients = new Set<Socket>();
  readonly #requests: string[] = [];
  readonly #replies: string[] = [];

  private constructor(port: number) {
    this.#port = port;
    this.#server = createServer((client) => this.#accept(client));
  }

  /** @param port of the server */
  static async open(port: number): Promise<HoldingProxy> {
    const proxy = new HoldingProxy(port);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  /** The server's address, by way of this proxy. */
  through(url: string): string {
    const through = new URL(url);
    through.host = `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
    return through.href;
  }

  /** Keeps all bytes, of both directions. */
  hold(): void {
    this.#holding = true;
  }

  /** Keeps the next request that contains `marker`, and what its connection sends after it. @returns its bytes */
  holdRequest(marker: string): Promise<string> {
    return new Promise((came) => {
      this.#wanted = { marker, came };
    });
  }

  /**
   * Passes on what was kept, and keeps nothing any more.
   * @returns resolves once each server that got a kept request has answered it, or closed the connection
   */
  async release(): Promise<void> {
    this.#holding = false;
    this.#wanted = undefined;
    const late = [...this.#ways].filter(({ to, kept }) => kept.length > 0 && !to.destroyed);
    const answers = late.map(({ to }) => Promise.race([once(to, 'data'), once(to, 'close')]));
    for (const way of this.#ways) for (const chunk of way.kept.splice(0)) send(way, chunk);
    await Promise.all(answers);
  }

  /** Closes every client's connection. Requests that are kept stay on their way to the server. */
  cutClients(): void {
    for (const client of this.#clients) client.destroy();
  }

  /** How many requests with `text` in them the server got. */
  requestsWith(text: string): number {
    return this.#requests.filter((request) => request.includes(text)).length;
  }

  /** How many replies with `text` in them were passed on. */
  repliesWith(text: string): number {
    return this.#replies.filter((reply) => reply.includes(text)).length;
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const way of this.#ways) way.to.destroy();
    await closed;
  }

  #accept(client: Socket): void {
    const upstream = connect({ host: '127.0.0.1', port: this.#port, noDelay: true });
    client.setNoDelay(true);
    const requests: Way = { to: upstream, passed: this.#requests, kept: [] };
    const replies: Way = { to: client, passed: this.#replies, kept: [] };
    const ways = [requests, replies];
    for (const way of ways) this.#ways.add(way);
    client.on('data', (chunk) => {
      const wanted = this.#wanted;
      const found = wanted !== undefined && requests.kept.length === 0 && chunk.includes(wanted.marker);
      if (found) this.#wanted = undefined;
      this.#pass(requests, chunk, this.#holding || found);
      if (found) wanted.came(chunk.toString());
    });
    upstream.on('data', (chunk) => this.#pass(replies, chunk, this.#holding));
    this.#clients.add(client);
    const end = () => {
      for (const way of ways) {
        this.#ways.delete(way);
        way.to.destroy();
      }
    };
    for (const socket of [client, upstream]) socket.on('error', () => {});
    upstream.on('close', end);
    client.on('close', () => {
      this.#clients.delete(client);
      if (requests.kept.length === 0) end(); // otherwise the network still delivers them
    });
  }

  #pass(way: Way, chunk: Buffer, keep: boolean): void {
    if (keep || way.kept.length > 0) way.kept.push(chunk);
    else if (this.delayMs === 0) send(way, chunk);
    else setTimeout(() => send(way, chunk), this.delayMs); // timers of one length keep their order
  }
}

function send(way: Way, chunk: Buffer): void {
  way.passed.push(chunk.toString());
  way.to.write(chunk);
}
