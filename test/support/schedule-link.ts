/**
 * A proxy between one client of a schedule and a server. Beyond losing bytes it can stall: it holds bytes and connection ends and
 * delivers them later, as a network does that recovers by retransmission. A connection that lost bytes is cut.
 */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

/** stall: see above. black-hole, lose-replies, lose-requests: bytes are swallowed. refuse: connections are cut. */
export type LinkMode = 'pass' | 'stall' | 'black-hole' | 'lose-replies' | 'lose-requests' | 'refuse';

/** Both halves of a connection. */
class Pair {
  readonly #client: Socket;
  readonly #upstream: Socket;
  readonly #link: ScheduleLink;
  #held: (() => void)[] = [];
  /** Bytes were swallowed. */
  holed = false;

  constructor(link: ScheduleLink, client: Socket, upstream: Socket) {
    this.#link = link;
    this.#client = client;
    this.#upstream = upstream;
    const directions = [
      { from: client, to: upstream, lost: 'lose-requests' },
      { from: upstream, to: client, lost: 'lose-replies' },
    ] as const;
    for (const { from, to, lost } of directions) {
      from.setNoDelay(true);
      from.on('error', () => {});
      from.on('data', (chunk) => this.#forward(lost, () => to.write(chunk)));
      from.on('close', () => this.#forward(lost, () => this.end()));
    }
  }

  end(): void {
    this.#link.pairs.delete(this);
    this.#client.destroy();
    this.#upstream.destroy();
  }

  /** Delivers what was held, in order. */
  resume(): void {
    for (const deliver of this.#held.splice(0)) deliver();
  }

  /** Runs `deliver` now, later or never, by the link's mode. */
  #forward(lost: LinkMode, deliver: () => void): void {
    const { mode } = this.#link;
    if (mode === 'stall' || this.#held.length > 0) this.#held.push(deliver);
    else if (mode === 'black-hole' || mode === lost) this.holed = true;
    else deliver();
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

  /** @returns whether this cut a connection */
  set(mode: LinkMode): boolean {
    this.mode = mode;
    const cut = [...this.pairs].filter((pair) => mode === 'refuse' || (mode === 'pass' && pair.holed));
    for (const pair of cut) pair.end();
    if (mode === 'pass') for (const pair of this.pairs) pair.resume();
    return cut.length > 0;
  }

  /** Ends all connections, as a reset does. @returns whether there were any */
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
