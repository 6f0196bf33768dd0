/**
 * What the pipelines of this process see of the world: clocks that stand still, timers that fire when they are chosen, numbers that are
 * random by a seed, and sockets that lead to a `Network`. Code under test is unchanged: `install` replaces the globals and the functions of
 * Node that it calls. The explorer itself uses `real`.
 *
 * An owner is whoever runs now: a pipeline, or the explorer. What is set up while it runs (a timer, a socket) is its own.
 */

import { openSync, writeSync } from 'node:fs';
import { createRequire, syncBuiltinESMExports } from 'node:module';
import type { Socket } from 'node:net';
import { uuidv7obj } from 'uuidv7';
import { type Random, seededRandom } from '../kit/random.ts';

const require = createRequire(import.meta.url);
const net = require('node:net') as typeof import('node:net');
const timersPromises = require('node:timers/promises') as typeof import('node:timers/promises');
const nodeCrypto = require('node:crypto') as typeof import('node:crypto');

/** The functions of Node before `install`. */
export const real = {
  setTimeout: globalThis.setTimeout,
  clearTimeout: globalThis.clearTimeout,
  setImmediate: globalThis.setImmediate,
  nowMs: performance.now.bind(performance),
  createConnection: net.createConnection,
  Socket: net.Socket,
};

/** Milliseconds since 1970 at which every schedule begins. */
export const START_MS = Date.UTC(2026, 0, 1);
/** A virtual port leads to the network of the schedule; every other one to a server of this machine. */
export const MAX_VIRTUAL_PORT = 1_000;

export interface Timer {
  readonly id: number;
  readonly owner: string;
  readonly everyMs: number | null;
  dueMs: number;
  readonly fire: () => void;
}

/** Makes what a client of a virtual port connects with. */
export type SocketFactory = () => Socket;

class VirtualWorld {
  /** Since 1970, with a fraction. */
  nowMs = START_MS;
  owner = 'explorer';
  readonly timers = new Map<number, Timer>();
  #lastTimer = 0;
  #immediates = 0;
  #random: Random = seededRandom(1);
  #clockFile = -1;
  #shownMs = 0;
  readonly #clockBytes = Buffer.alloc(8);

  /** @param path of the file that the servers' clocks follow: see lab/servers/clock.c */
  openClock(path: string): void {
    this.#clockFile = openSync(path, 'w');
    this.showNow();
  }

  /** Sets the clocks of the servers. To be called before one is sent something. */
  showNow(): void {
    if (this.nowMs === this.#shownMs) return;
    this.#shownMs = this.nowMs;
    this.#clockBytes.writeBigInt64LE(BigInt(Math.round(this.nowMs * 1_000)));
    writeSync(this.#clockFile, this.#clockBytes, 0, 8, 0);
  }

  /** Begins a schedule. */
  reset(seed: number): void {
    this.timers.clear();
    this.#lastTimer = 0;
    this.#random = seededRandom(seed);
    this.owner = 'explorer';
    this.#resetOrderIds();
  }

  /** The generator of order ids keeps random bytes in advance, and a counter, from the schedule before. */
  #resetOrderIds(): void {
    this.nowMs = START_MS;
    uuidv7obj();
    for (const before = this.filled; this.filled === before; ) uuidv7obj(); // one number each, until it has drawn new ones
    this.nowMs = START_MS - 3_600_000; // so far back that it begins again
    uuidv7obj();
    this.nowMs = START_MS;
  }

  /** How often random bytes were asked for. */
  filled = 0;

  random(): number {
    return this.#random();
  }

  /** Runs what an owner does at once, and what follows from it until it waits for something. */
  async as(owner: string, work: () => unknown): Promise<void> {
    this.owner = owner;
    work();
    await this.settled();
    this.owner = 'explorer';
  }

  /** Waits until everything waits for a timer or a socket. */
  async settled(): Promise<void> {
    do await new Promise<void>((resolve) => real.setImmediate(resolve));
    while (this.#immediates > 0);
  }

  addTimer(fire: () => void, ms: unknown, isRepeated = false): Timer {
    const delayMs = Math.max(1, Number(ms) || 0);
    const id = ++this.#lastTimer;
    const timer = {
      id,
      owner: this.owner,
      everyMs: isRepeated ? delayMs : null,
      dueMs: this.nowMs + delayMs,
      fire,
    };
    this.timers.set(id, timer);
    return timer;
  }

  /** Lets a timer fire, at its time or later. */
  fire(timer: Timer): void {
    this.nowMs = Math.max(this.nowMs, timer.dueMs);
    if (timer.everyMs === null) this.timers.delete(timer.id);
    else timer.dueMs = this.nowMs + timer.everyMs;
    timer.fire();
  }

  setImmediate(work: (...args: unknown[]) => void, ...args: unknown[]): void {
    this.#immediates++;
    real.setImmediate(() => {
      this.#immediates--;
      work(...args);
    });
  }
}

export const virtual = new VirtualWorld();

/** What setTimeout returns. */
class Handle {
  readonly #work: () => void;
  readonly #ms: unknown;
  #timer: Timer;

  constructor(work: () => void, ms: unknown, isRepeated: boolean) {
    this.#work = work;
    this.#ms = ms;
    this.#timer = virtual.addTimer(work, ms, isRepeated);
  }

  ref() {
    return this;
  }
  unref() {
    return this;
  }
  hasRef() {
    return true;
  }
  refresh() {
    this.close();
    this.#timer = virtual.addTimer(this.#work, this.#ms);
    return this;
  }
  close() {
    virtual.timers.delete(this.#timer.id);
    return this;
  }
  [Symbol.toPrimitive]() {
    return this.#timer.id;
  }
  [Symbol.dispose]() {
    this.close();
  }
}

const clear = (handle: unknown): void => {
  if (handle instanceof Handle) handle.close();
  else if (typeof handle === 'number') virtual.timers.delete(handle);
  else real.clearTimeout(handle as NodeJS.Timeout);
};

function sleep<T>(ms?: number, value?: T, { signal }: { readonly signal?: AbortSignal } = {}): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      timer.close();
      reject(
        Object.assign(new Error('The operation was aborted'), { name: 'AbortError', code: 'ABORT_ERR' }),
      );
    };
    const timer = new Handle(
      () => {
        signal?.removeEventListener('abort', abort);
        resolve(value as T);
      },
      ms,
      false,
    );
    if (signal?.aborted) abort();
    else signal?.addEventListener('abort', abort, { once: true });
  });
}

const RealDate = Date;
class VirtualDate extends RealDate {
  constructor(...given: unknown[]) {
    super(...((given.length === 0 ? [Math.floor(virtual.nowMs)] : given) as [number]));
  }
  static override now(): number {
    return Math.floor(virtual.nowMs);
  }
}

function randomBytes(size: number): Buffer {
  return Buffer.from(Array.from({ length: size }, () => Math.floor(virtual.random() * 256)));
}

function randomUUID(): string {
  const hex = randomBytes(16).toString('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20)}`;
}

/** Replaces the globals of this process, for good. To be called before a client of a store is loaded. @param socket for virtual ports */
export function install(socket: SocketFactory): void {
  const timeout =
    (isRepeated: boolean) =>
    (work: (...args: unknown[]) => void, ms: unknown, ...args: unknown[]) =>
      new Handle(() => work(...args), ms, isRepeated);
  const inProcess = {
    setTimeout: timeout(false),
    setInterval: timeout(true),
    clearTimeout: clear,
    clearInterval: clear,
    setImmediate: virtual.setImmediate.bind(virtual),
    Date: VirtualDate,
  };
  Object.assign(globalThis, inProcess);
  performance.now = () => virtual.nowMs - START_MS + 1_000;
  Math.random = () => virtual.random();
  const chance = {
    randomUUID,
    getRandomValues: <T extends ArrayBufferView>(to: T): T => {
      virtual.filled++;
      const bytes = new Uint8Array(to.buffer, to.byteOffset, to.byteLength);
      for (let i = 0; i < bytes.length; i++) bytes[i] = Math.floor(virtual.random() * 256);
      return to;
    },
  };
  for (const [name, value] of Object.entries(chance))
    Object.defineProperty(globalThis.crypto, name, { value, configurable: true });
  const ofNode: [object, object][] = [
    [timersPromises, { setTimeout: sleep }],
    [nodeCrypto, { randomUUID, randomBytes }],
    [
      net,
      {
        // node-postgres makes a socket, and then connects it.
        Socket: new Proxy(real.Socket, { construct: () => socket() }),
        createConnection(options: { readonly port?: number }, ...rest: unknown[]) {
          if ((options.port ?? Number.POSITIVE_INFINITY) > MAX_VIRTUAL_PORT)
            return Reflect.apply(real.createConnection, net, [options, ...rest]);
          const made = socket();
          made.connect(options.port!);
          return made;
        },
      },
    ],
  ];
  for (const [module, changes] of ofNode) Object.assign(module, changes);
  syncBuiltinESMExports();
}
