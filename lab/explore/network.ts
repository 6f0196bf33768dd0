/**
 * The network between the pipelines and the stores. What a client writes becomes requests, and what a server replies becomes answers; both
 * wait here until the scheduler delivers them, in their order on each link.
 *
 *   connecting ──deliver──▶ open ──the client closes it, dies, or is cut off──▶ left ──deliver what was sent, or not──▶ closed
 *
 * After a link was left, the server may still receive what was sent: its answers are lost.
 */
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { virtual } from './virtual.ts';

/** What one request does to a server, as bytes. */
export interface Request {
  readonly bytes: Buffer;
  /** What it asks for, such as "script sale/reserve" or "COMMIT". */
  readonly name: string;
}

/** The server's side of a link. */
export interface Backend {
  /** The whole requests in what a client has written. */
  requestsIn(bytes: Buffer): Request[];
  /**
   * Hands one request to the server.
   * @returns the answer, or `waiting`: the server has it, and waits for another request to end (`answered` is called later); or `ended`: it
   *   closed the connection
   */
  execute(request: Request): Promise<Buffer | 'waiting' | 'ended'>;
  /** Whether it belongs to the opening of the connection: it is executed and answered at once. */
  isGreeting(request: Request): boolean;
  /** The connection is over for the server, too. */
  close(): Promise<void>;
}

/** Where a virtual port leads. */
export interface Place {
  /** The process that connects to it now. */
  owner(): string;
  readonly store: 'postgres' | 'redis';
  /** @returns null: the server refuses the connection */
  connect(link: Link): Promise<Backend | null>;
}

export class Link {
  readonly id: number;
  /** Among the links of its owner to the place that are there now: the same in a shorter schedule. */
  readonly number: number;
  readonly name: string;
  readonly place: Place;
  /** The process that opened it. */
  readonly owner: string;
  readonly socket: VirtualSocket;
  state: 'connecting' | 'open' | 'left' | 'closed' = 'connecting';
  backend: Backend | null = null;
  /** Sent by the client, not yet executed. */
  readonly requests: Request[] = [];
  /** Sent by the server, not yet received. */
  readonly answers: { readonly bytes: Buffer; readonly name: string }[] = [];
  /** The request that waits inside the server, and since when. */
  waiting: Request | null = null;
  waitingSinceMs = 0;
  /** Whether nothing arrives any more, in either direction, until the client gives up. */
  isSilent = false;

  constructor(id: number, number: number, place: Place, owner: string, socket: VirtualSocket) {
    this.id = id;
    this.number = number;
    this.place = place;
    this.owner = owner;
    this.socket = socket;
    this.name = `${owner} ${place.store} #${number}`;
  }
}

/** A client's end of a link: what node-postgres and ioredis use of a socket. */
export class VirtualSocket extends Duplex {
  connecting = true;
  readonly remoteAddress = '127.0.0.1';
  readonly #network: Network;
  #link: Link | null = null;
  #timer: ReturnType<typeof setTimeout> | null = null;

  constructor(network: Network) {
    super({ allowHalfOpen: false });
    this.#network = network;
  }

  connect(port: number | { readonly port: number }): this {
    this.#link = this.#network.open(typeof port === 'number' ? port : port.port, this);
    return this;
  }

  /** Called by the network. */
  connected(): void {
    this.connecting = false;
    this.emit('connect');
    this.emit('ready');
  }

  setTimeout(ms: number, callback?: () => void): this {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = ms === 0 ? null : setTimeout(() => this.emit('timeout'), ms);
    if (callback !== undefined && ms > 0) this.once('timeout', callback);
    return this;
  }
  setNoDelay(): this {
    return this;
  }
  setKeepAlive(): this {
    return this;
  }
  ref(): this {
    return this;
  }
  unref(): this {
    return this;
  }

  override _read(): void {}

  override _write(bytes: Buffer, _encoding: string, done: () => void): void {
    this.#network.send(this.#link!, bytes);
    done();
  }

  override _writev(parts: { readonly chunk: Buffer }[], done: () => void): void {
    this.#network.send(this.#link!, Buffer.concat(parts.map(({ chunk }) => chunk)));
    done();
  }

  override _final(done: () => void): void {
    this.destroy();
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    if (this.#link !== null) this.#network.left(this.#link);
    done(error);
  }
}

export class Network {
  readonly links: Link[] = [];
  readonly #places: ReadonlyMap<number, Place>;
  #last = 0;

  /** @param places by virtual port */
  constructor(places: ReadonlyMap<number, Place>) {
    this.#places = places;
  }

  socket(): Socket {
    return new VirtualSocket(this) as unknown as Socket;
  }

  open(port: number, socket: VirtualSocket): Link {
    const place = this.#places.get(port)!;
    const owner = place.owner();
    const isOf = (link: Link) => link.owner === owner && link.place === place;
    const taken = new Set(this.links.filter(isOf).map(({ number }) => number));
    let number = 1;
    while (taken.has(number)) number++;
    const link = new Link(++this.#last, number, place, owner, socket);
    this.links.push(link);
    return link;
  }

  send(link: Link, bytes: Buffer): void {
    if (link.backend !== null) link.requests.push(...link.backend.requestsIn(bytes));
  }

  left(link: Link): void {
    if (link.state === 'left' || link.state === 'closed') return;
    link.state = 'left';
    link.answers.length = 0;
  }

  /** Connects a link. */
  async connect(link: Link): Promise<void> {
    link.backend = await link.place.connect(link);
    if (link.backend === null) {
      link.state = 'closed';
      const refused = new Error(`connect ECONNREFUSED ${link.name}`);
      Object.assign(refused, { code: 'ECONNREFUSED', syscall: 'connect' });
      await virtual.as(link.owner, () => link.socket.destroy(refused));
      return;
    }
    link.state = 'open';
    await virtual.as(link.owner, () => link.socket.connected());
    while (link.requests[0] !== undefined && link.backend.isGreeting(link.requests[0])) {
      await this.execute(link);
      if (link.answers.length > 0) await this.answer(link);
    }
  }

  /** Delivers the first request of a link. */
  async execute(link: Link): Promise<void> {
    const request = link.requests.shift()!;
    virtual.showNow();
    const reply = await link.backend!.execute(request);
    if (reply === 'waiting') {
      link.waiting = request;
      link.waitingSinceMs = virtual.nowMs;
    } else await this.replied(link, request, reply);
  }

  /** The server has answered a request. */
  async replied(link: Link, request: Request, reply: Buffer | 'ended'): Promise<void> {
    link.waiting = null;
    if (reply === 'ended') return this.cut(link);
    if (link.state === 'open') link.answers.push({ bytes: reply, name: request.name });
  }

  /** Delivers the first answer of a link. */
  async answer(link: Link): Promise<void> {
    const { bytes } = link.answers.shift()!;
    await virtual.as(link.owner, () => link.socket.push(bytes));
  }

  /** Ends the connection for its client. What was sent may still arrive. */
  async cut(link: Link): Promise<void> {
    if (link.state !== 'open' && link.state !== 'connecting') return;
    const reset = Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET', syscall: 'read' });
    await virtual.as(link.owner, () => link.socket.destroy(reset));
    this.left(link);
  }

  /** Ends the connection for its server, too. */
  async close(link: Link): Promise<void> {
    link.requests.length = 0;
    link.state = 'closed';
    const { backend } = link;
    link.backend = null;
    await backend?.close();
    const at = this.links.indexOf(link);
    if (at >= 0) this.links.splice(at, 1);
  }
}
