/**
 * A TCP proxy on the loopback, to take a network apart between a client and a server.
 *
 * A network that loses bytes does not tell: nobody sees a closed connection, and what is written is swallowed. When
 * bytes pass again, connections that lost some are cut, since their stream has a hole.
 */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

/**
 * pass: as if it were not there. lose-replies, lose-requests: bytes of one direction are swallowed. black-hole: both.
 * refuse: connections are cut, and new ones at once.
 */
export type LinkMode = 'pass' | 'lose-replies' | 'lose-requests' | 'black-hole' | 'refuse';

/** The way of one client to its server, or to all of its servers. */
export interface Link {
  set(mode: LinkMode): void;
  /** How many chunks the client has sent so far. */
  readonly requests: number;
}

interface Pair {
  readonly client: Socket;
  readonly upstream: Socket;
  /** Bytes were swallowed. */
  holed: boolean;
  /** The filter refused a request: nothing is passed on any more. */
  stuck: boolean;
}

export interface ProxyOptions {
  readonly host?: string;
  readonly port: number;
  /** Where it listens; a free port by itself. */
  readonly listen?: number;
  /** Whether a request may pass. After the first that may not, its connection passes no request any more. */
  readonly filter?: (chunk: Buffer) => boolean;
}

export class TcpProxy implements Link, AsyncDisposable {
  requests = 0;
  #mode: LinkMode = 'pass';
  readonly #server: Server;
  readonly #options: ProxyOptions;
  readonly #pairs = new Set<Pair>();

  private constructor(options: ProxyOptions) {
    this.#options = options;
    this.#server = createServer((client) => this.#accept(client));
  }

  static async open(options: ProxyOptions): Promise<TcpProxy> {
    const proxy = new TcpProxy(options);
    proxy.#server.listen(options.listen ?? 0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** The server's address, by way of this proxy. */
  through(url: string): string {
    const through = new URL(url);
    through.host = `127.0.0.1:${this.port}`;
    return through.href;
  }

  get connections(): number {
    return this.#pairs.size;
  }

  set(mode: LinkMode): void {
    this.#mode = mode;
    for (const pair of this.#pairs) {
      const dead = pair.client.destroyed || pair.upstream.destroyed;
      if (mode === 'refuse' || (mode === 'pass' && (pair.holed || dead))) this.#end(pair);
    }
  }

  /** Ends all connections, as a reset would. */
  cut(): void {
    for (const pair of this.#pairs) this.#end(pair);
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.cut();
    await closed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #loses(way: 'replies' | 'requests'): boolean {
    return this.#mode === 'black-hole' || this.#mode === `lose-${way}`;
  }

  #accept(client: Socket): void {
    if (this.#mode === 'refuse') {
      client.destroy();
      return;
    }
    const { host = '127.0.0.1', port, filter = () => true } = this.#options;
    const upstream = connect({ host, port, noDelay: true });
    const pair: Pair = { client, upstream, holed: false, stuck: false };
    this.#pairs.add(pair);
    client.setNoDelay(true);
    // No back-pressure: what is tested here is small.
    client.on('data', (chunk) => {
      this.requests++;
      pair.stuck ||= !filter(chunk);
      if (pair.stuck || this.#loses('requests')) pair.holed = true;
      else upstream.write(chunk);
    });
    upstream.on('data', (chunk) => {
      if (this.#loses('replies')) pair.holed = true;
      else client.write(chunk);
    });
    // The end of a connection is lost like any other byte.
    client.on('close', () => this.#loses('requests') || pair.stuck || this.#end(pair));
    upstream.on('close', () => this.#loses('replies') || this.#end(pair));
    for (const socket of [client, upstream]) socket.on('error', () => {});
  }

  #end(pair: Pair): void {
    this.#pairs.delete(pair);
    pair.client.destroy();
    pair.upstream.destroy();
  }
}
