/**
 * A TCP proxy on the loopback that shows each request to a watcher before it is passed on, and whose server can be
 * another one from one moment to the next.
 *
 *   request ──watch──▶ passed on ──▶ what the watcher wants done then
 *                └──▶ kept: its connection is cut, and what was passed on before arrives all the same
 *
 * When a client ends, its connection to the server ends behind all that was passed on: a kernel does the same for a
 * process that is killed.
 */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

/**
 * Looks at what one read from a client's connection brought.
 * @returns `keep`: it is not passed on; or what is to be done as soon as it was
 */
export type Watch = (request: string, connection: object) => 'pass' | 'keep' | (() => void);

export class TapProxy implements AsyncDisposable {
  watch: Watch = () => 'pass';
  #port: number;
  readonly #server: Server;
  readonly #pairs = new Set<readonly [client: Socket, upstream: Socket]>();

  private constructor(port: number) {
    this.#port = port;
    this.#server = createServer((client) => this.#accept(client));
  }

  /** @param port of the server */
  static async open(port: number): Promise<TapProxy> {
    const proxy = new TapProxy(port);
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

  /** Leads to another server from now on; connections to the one before are cut. */
  lead(port: number): void {
    this.#port = port;
    this.cut();
  }

  /** Ends all connections, as a reset would. */
  cut(): void {
    for (const pair of this.#pairs) for (const socket of pair) socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.cut();
    await closed;
  }

  #accept(client: Socket): void {
    const upstream = connect({ host: '127.0.0.1', port: this.#port, noDelay: true });
    const pair = [client, upstream] as const;
    this.#pairs.add(pair);
    client.setNoDelay(true);
    client.on('data', (chunk) => {
      const verdict = this.watch(chunk.toString('latin1'), pair);
      if (verdict === 'keep') {
        client.destroy();
        return;
      }
      upstream.write(chunk);
      if (verdict !== 'pass') verdict();
    });
    upstream.on('data', (chunk) => client.destroyed || client.write(chunk));
    client.on('close', () => upstream.end());
    upstream.on('close', () => {
      client.destroy();
      this.#pairs.delete(pair);
    });
    for (const socket of pair) socket.on('error', () => {});
  }
}
