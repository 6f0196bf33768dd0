/**
 * The way of one client of a schedule to its servers, which can also stall: bytes, and the ends of connections, are kept
 * back and come later, as in a network that recovers by sending again. (The proxy of the other tests only loses bytes,
 * and passes none any more on a connection that lost some. Here that connection is cut.)
 */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

/** pass, stall: see above. black-hole, lose-replies, lose-requests: bytes are swallowed. refuse: nobody is let in. */
export type LinkMode = 'pass' | 'stall' | 'black-hole' | 'lose-replies' | 'lose-requests' | 'refuse';

/** A connection, both halves of it. */
class Pair {
  readonly #client: Socket;
  readonly #upstream: Socket;
  readonly #link: ScheduleLink;
  #kept: (() => void)[] = [];
  /** Bytes were swallowed. */
  holed = false;

  constructor(link: ScheduleLink, client: Socket, upstream: Socket) {
    this.#link = link;
    this.#client = client;
    this.#upstream = upstream;
    const ways = [
      { from: client, to: upstream, lost: 'lose-requests' },
      { from: upstream, to: client, lost: 'lose-replies' },
    ] as const;
    for (const { from, to, lost } of ways) {
      from.setNoDelay(true);
      from.on('error', () => {});
      from.on('data', (chunk) => this.#carry(lost, () => to.write(chunk)));
      from.on('close', () => this.#carry(lost, () => this.end()));
    }
  }

  end(): void {
    this.#link.pairs.delete(this);
    this.#client.destroy();
    this.#upstream.destroy();
  }

  /** What was kept comes in its order. */
  goOn(): void {
    for (const work of this.#kept.splice(0)) work();
  }

  /** Does it, or does it later, or never. */
  #carry(lost: LinkMode, work: () => void): void {
    const { mode } = this.#link;
    if (mode === 'stall' || this.#kept.length > 0) this.#kept.push(work);
    else if (mode === 'black-hole' || mode === lost) this.holed = true;
    else work();
  }
}

export class ScheduleLink {
  readonly pairs = new Set<Pair>();
  mode: LinkMode = 'pass';
  readonly #server: Server;

  private constructor(server: Server, port: number) {
    this.#server = server;
    server.on('connection', (client: Socket) => {
      if (this.mode === 'refuse') client.destroy();
      else this.pairs.add(new Pair(this, client, connect({ host: '127.0.0.1', port, noDelay: true })));
    });
  }

  /** @param port of the server */
  static async open(port: number): Promise<ScheduleLink> {
    const server = createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new ScheduleLink(server, port);
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** @returns whether a connection was cut by it */
  set(mode: LinkMode): boolean {
    this.mode = mode;
    const cut = [...this.pairs].filter((pair) => mode === 'refuse' || (mode === 'pass' && pair.holed));
    for (const pair of cut) pair.end();
    if (mode === 'pass') for (const pair of this.pairs) pair.goOn();
    return cut.length > 0;
  }

  /** Ends all connections, as a reset would. @returns whether there were any */
  cut(): boolean {
    const any = this.pairs.size > 0;
    for (const pair of this.pairs) pair.end();
    return any;
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.mode = 'refuse';
    this.cut();
    await closed;
  }
}
