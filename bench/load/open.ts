/**
 * Open loop: each attempt is sent at its intended start, whether earlier ones were answered or not. Latency counts from the
 * intended start, so that all attempts due during a stall of the server or of this generator show it (no coordinated
 * omission).
 *
 *   scheduled ─due─▶ taken ─▶ handed to a free connection ─▶ sent ─▶ answered | unknown (reset, timeout)
 *       │              │                     ▲     └─ no connection: `unconnected`, never sent
 *       │              ├─ all connections busy: waits, first in, first out
 *       │              └─ `maxOutstanding` in flight, or waited for a whole timeout: `dropped`, never sent
 *       └─ the load was ended before its time: `notBegun`
 *
 * 10,000 requests/s keep 65 % of one core busy; half a ms of lag is normal.
 */
import { setMaxListeners } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { performance } from 'node:perf_hooks';
import { percentilesMs } from '../kit/percentile.ts';
import { type Answer, readAnswer } from './answer.ts';
import { buyerName, poisson } from './attempts.ts';
import { type Connection, connectionTo, type Events } from './connection.ts';
import { oneUnit, purchaseBody, type Quantities, unitsField, unitsOf } from './purchase.ts';
import { type Recorded, Recorder } from './recorder.ts';
import { type Sending, whyInvalid } from './sending.ts';

export interface OpenLoad {
  /** Where the service answers, without a path. */
  readonly url: string;
  readonly saleId: number;
  /** The customer of each attempt, in order. */
  readonly users: readonly string[];
  /** Units of an order; left out: one. */
  readonly quantities?: Quantities;
  /** The intended start of each attempt, µs since the load began, ascending; as long as `users` (attempts.ts). */
  readonly schedule: Float64Array;
  /** Opened before the load begins, and kept alive; each attempt has one to itself. */
  readonly connections: number;
  /** Most attempts in flight or waiting for a connection; others are dropped. */
  readonly maxOutstanding: number;
  /** The server may be slower than the arrivals: waiting is not the generator's fault. */
  readonly mayWait?: boolean;
  /** An attempt without an answer is `unknown` after this (or up to a second later); at least 1,000. */
  readonly requestTimeoutMs: number;
  /** Ends the load at once: the service is gone, or the user wants to stop. */
  readonly signal?: AbortSignal;
  /** Called when the load begins, after the connections are open. `originMs`: the history's zero by `performance.now`. */
  readonly onBegin?: (originMs: number) => void;
  /** Called a few times a second with the attempts answered so far. */
  readonly onProgress?: (answers: number) => void;
  /** Called for each answer, with the units of its attempt. @returns true: no attempt begins from now on; outstanding answers are awaited */
  readonly onAnswer?: (answer: Answer, units: number) => boolean;
  /** Called for each attempt that ends without an answer; not sent: dropped, or no connection. */
  readonly onMissing?: (wasSent: boolean) => void;
}

/** Times of the history count from the load's start: an intended start is `schedule[record.id]`. */
export interface OpenResult extends Recorded {
  readonly sending: Sending;
  /** Why the figures say more about the generator than about the service; empty: they do not. */
  readonly reasons: readonly string[];
}

const progressEveryMs = 200;
/** Connections opened at the same time: fewer than the backlog of any server. */
const openAtOnce = 64;

/** Server failures end up in the result. @throws RangeError when `users` and `schedule` differ in length */
export async function runOpenLoop(load: OpenLoad): Promise<OpenResult> {
  const { users, schedule, signal } = load;
  if (users.length !== schedule.length) {
    throw new RangeError(`open loop: ${users.length} users, ${schedule.length} intended starts`);
  }
  if (signal) setMaxListeners(0, signal);
  const loop = new OpenLoop(load);
  const path = `/sales/${load.saleId}/orders`;
  const connections = Array.from({ length: load.connections }, () =>
    connectionTo(load.url, path, load.requestTimeoutMs, loop),
  );
  const progress = setInterval(() => load.onProgress?.(loop.answers), progressEveryMs);
  try {
    for (let from = 0; from < connections.length && !signal?.aborted; from += openAtOnce) {
      await Promise.allSettled(connections.slice(from, from + openAtOnce).map((one) => one.open(signal)));
    }
    await loop.run(connections);
  } finally {
    clearInterval(progress);
    await Promise.all(connections.map((one) => one.close()));
  }
  return loop.result();
}

class OpenLoop implements Events {
  readonly #load: OpenLoad;
  readonly #recorder = new Recorder();
  /** Connections without an attempt; the longest idle one is next, so that none is closed for idleness. */
  #free: Connection[] = [];
  readonly #waiting: number[] = [];
  /** How late each attempt was taken, µs from its intended start. */
  readonly #ownLagUs: number[] = [];
  /** Attempts from here on do not begin. */
  #last: number;
  #outstanding = 0;
  #dropped = 0;
  #unconnected = 0;
  #originMs = 0;
  #idleBefore = performance.eventLoopUtilization();
  #utilization: number | null = null;
  #end = (): void => {};
  #isOver = false;
  #timer: NodeJS.Timeout | undefined;
  #soon: NodeJS.Immediate | undefined;

  constructor(load: OpenLoad) {
    this.#load = load;
    this.#last = load.schedule.length;
  }

  get answers(): number {
    return this.#recorder.answers;
  }

  /** Resolves when every attempt has come to its end, or when the load's signal fires. */
  async run(connections: readonly Connection[]): Promise<void> {
    const { signal } = this.#load;
    this.#free = [...connections];
    this.#originMs = performance.now();
    this.#load.onBegin?.(this.#originMs);
    this.#idleBefore = performance.eventLoopUtilization();
    await new Promise<void>((resolve) => {
      this.#end = resolve;
      signal?.addEventListener('abort', this.#end);
      if (signal?.aborted) this.#end();
      else this.#advance();
    });
    this.#isOver = true;
    this.#scheduleEnded();
    signal?.removeEventListener('abort', this.#end);
    clearTimeout(this.#timer);
    clearImmediate(this.#soon);
  }

  /** Hands waiting attempts to connections, then takes those that are due. Runs when one is due, and after answers. */
  readonly #advance = (): void => {
    const { schedule, requestTimeoutMs } = this.#load;
    const nowUs = this.#nowUs();
    while (this.#waiting.length > 0 && this.#free.length > 0) {
      const attempt = this.#waiting.shift()!;
      if (nowUs - schedule[attempt]! < requestTimeoutMs * 1_000) this.#hand(attempt);
      else this.#drop();
    }
    for (let next = this.#taken; next < this.#last && schedule[next]! <= nowUs; next = this.#taken) {
      this.#ownLagUs.push(nowUs - schedule[next]!);
      this.#outstanding += 1;
      if (this.#outstanding > this.#load.maxOutstanding) this.#drop();
      else if (this.#free.length > 0) this.#hand(next);
      else this.#waiting.push(next);
    }
    if (this.#taken < this.#last) {
      const delayMs = Math.ceil((schedule[this.#taken]! - nowUs) / 1_000);
      this.#timer ??= setTimeout(() => {
        this.#timer = undefined;
        this.#advance();
      }, delayMs);
      return;
    }
    this.#scheduleEnded();
    if (this.#outstanding === 0) this.#end();
  };

  get #taken(): number {
    return this.#ownLagUs.length;
  }

  #hand(attempt: number): void {
    const { users, quantities = oneUnit } = this.#load;
    this.#free.shift()!.send(attempt, purchaseBody(users[attempt]!, quantities));
  }

  #drop(): void {
    this.#outstanding -= 1;
    this.#dropped += 1;
    this.#load.onMissing?.(false);
  }

  sent(attempt: number): void {
    const { saleId, users, quantities = oneUnit } = this.#load;
    const userId = users[attempt]!;
    this.#recorder.sent(attempt, { saleId, userId, ...unitsField(userId, quantities) }, this.#nowUs());
  }

  answered(attempt: number, status: number, body: string): void {
    const answer = readAnswer(status, body);
    this.#recorder.answered(attempt, this.#nowUs(), status, answer, body);
    const { users, quantities = oneUnit, onAnswer } = this.#load;
    if (onAnswer?.(answer, unitsOf(users[attempt]!, quantities))) this.#last = this.#taken;
  }

  finished(attempt: number, connection: Connection): void {
    if (this.#isOver) return;
    const wasSent = this.#recorder.hasSent(attempt);
    if (!wasSent) this.#unconnected += 1;
    if (!this.#recorder.hasAnswer(attempt)) this.#load.onMissing?.(wasSent);
    this.#outstanding -= 1;
    this.#free.push(connection);
    this.#soon ??= setImmediate(() => {
      this.#soon = undefined;
      this.#advance();
    });
  }

  #scheduleEnded(): void {
    this.#utilization ??= performance.eventLoopUtilization(this.#idleBefore).utilization;
  }

  /** Whole µs, rounded up: no attempt is sent before its intended start. */
  #nowUs(): number {
    return Math.ceil((performance.now() - this.#originMs) * 1_000);
  }

  result(): OpenResult {
    const { schedule } = this.#load;
    const { strangeAnswers } = this.#recorder;
    const history = this.#recorder.history();
    const counts = { sent: history.length, dropped: this.#dropped, unconnected: this.#unconnected };
    const sending: Sending = {
      scheduled: schedule.length,
      ...counts,
      notBegun: schedule.length - counts.sent - counts.dropped - counts.unconnected,
      lagMs: percentilesMs(history.map(({ id, invokedUs }) => invokedUs - schedule[id]!)),
      ownLagMs: percentilesMs(this.#ownLagUs),
      utilization: this.#utilization ?? 0,
    };
    return { history, strangeAnswers, sending, reasons: whyInvalid(sending, this.#load) };
  }
}

/**
 * A young process sends its first ten thousand requests late, and drops some, until its code is compiled. A server in this
 * process takes 2.5 s of these, instead of a service under test.
 * @param connections as many as will be used afterwards
 */
export async function warmGeneratorUp(connections: number, signal: AbortSignal): Promise<void> {
  const server = createServer((request, response) => {
    request.resume().once('end', () => response.writeHead(503).end('{"type":"busy"}'));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const schedule = poisson({ ratePerSecond: 5_000, durationMs: 2_500, seed: 1 });
  const users = Array.from(schedule, (_, n) => buyerName(n));
  const bounds = { connections, maxOutstanding: connections, requestTimeoutMs: 10_000, signal };
  try {
    await runOpenLoop({ url, saleId: 1, users, schedule, ...bounds });
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}
