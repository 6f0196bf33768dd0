/**
 * Open loop on undici: each attempt is sent at its intended start, whether earlier ones were answered or not. Latency
 * counts from the intended start, so that a stall of the server or of this generator is seen by all attempts due meanwhile
 * (no coordinated omission).
 *
 *   scheduled ─due─▶ taken ─▶ handed to a free connection ─▶ sent ─▶ answered | unknown (reset, timeout)
 *       │              │                     ▲     └─ no connection: `unconnected`, never sent
 *       │              ├─ all connections busy: waits, first in, first out
 *       │              └─ `maxOutstanding` in flight, or waited for a whole timeout: `dropped`, never sent
 *       └─ the load was ended before its time: `notBegun`
 *
 * Every scheduled attempt is counted in exactly one of these ends. Late sending is measured as lag; when lag, drops or
 * the generator's own load show that the schedule was not kept, the result says why it is not valid.
 *
 * One undici `Client` a connection and a ring of free ones, instead of undici's `Pool`: the pool scans its connections
 * (42 µs of CPU a request with 512 of them, instead of 31), and its queue would hide waiting. 10,000 requests/s keep 65 %
 * of one core busy; half a ms of lag is normal. The first ten thousand requests of a process are later: warm up first.
 */
import { performance } from 'node:perf_hooks';
import type { HistoryRecord } from '../kit/history.ts';
import { type Answer, readAnswer } from './answer.ts';
import { Lane, type Lanekeeper } from './lane.ts';
import { AttemptRecorder, type StrangeAnswer } from './recorder.ts';
import { lagOf, never, type Sending, whyInvalid } from './sending.ts';

export interface OpenLoad {
  /** Where the service answers, without a path. */
  readonly url: string;
  readonly saleId: number;
  /** The customer of each attempt, in order. */
  readonly users: readonly string[];
  /** The intended start of each attempt, µs since the load began, ascending; as long as `users` (schedule.ts). */
  readonly schedule: Float64Array;
  /** Opened before the load begins, and kept alive; an attempt has one of them for itself. */
  readonly connections: number;
  /** Attempts in flight or waiting for a connection; one beyond them is dropped. */
  readonly maxOutstanding: number;
  /** The server may be slower than attempts come: that they wait is no fault of the generator. */
  readonly mayWait?: boolean;
  /** An attempt without an answer is `unknown` after this (or up to a second later); at least 1,000. */
  readonly requestTimeoutMs: number;
  /** Ends the load at once: the service is gone, or the user wants to stop. */
  readonly signal?: AbortSignal;
  /** Called a few times a second with the attempts answered so far. */
  readonly onProgress?: (completed: number) => void;
  /** Called when the last attempt of the schedule was taken; answers may be outstanding. */
  readonly onScheduleEnd?: () => void;
  /** Called for each answer. @returns true: no attempt begins from now on; outstanding answers are awaited */
  readonly onAnswer?: (answer: Answer) => boolean;
}

/** Times of the history count from the load's begin: an intended start is `schedule[record.id]`. */
export interface OpenResult {
  readonly history: readonly HistoryRecord[];
  readonly strangeAnswers: readonly StrangeAnswer[];
  readonly sending: Sending;
  /** Why the figures say more about the generator than about the service; empty: they do not. */
  readonly reasons: readonly string[];
}

const progressEveryMs = 200;
/** Connections opened at the same time: fewer than any server lets wait. */
const openAtOnce = 64;
/** undici's timers are this coarse. */
const timerSlackMs = 1_000;

/** Throws a RangeError when `users` and `schedule` differ in length; whatever the server does ends in the result. */
export async function runOpenLoop(load: OpenLoad): Promise<OpenResult> {
  if (load.users.length !== load.schedule.length) {
    throw new RangeError(`open loop: ${load.users.length} users, ${load.schedule.length} intended starts`);
  }
  const generator = new Generator(load);
  const progress = setInterval(() => load.onProgress?.(generator.completed), progressEveryMs);
  const abort = (): void => generator.stop();
  load.signal?.addEventListener('abort', abort);
  if (load.signal?.aborted) abort();
  try {
    await generator.openConnections();
    await generator.run();
  } finally {
    clearInterval(progress);
    load.signal?.removeEventListener('abort', abort);
    await generator.closeConnections();
  }
  return generator.result();
}

class Generator implements Lanekeeper {
  readonly #load: OpenLoad;
  readonly #recorder: AttemptRecorder;
  readonly #lanes: readonly Lane[];
  /** Lanes without an attempt; the longest idle one is next, so that none is closed for idleness. */
  readonly #free: Ring<Lane>;
  readonly #waiting: Ring<number>;
  /** When each attempt was sent and answered: µs since the load began. */
  readonly #sentUs: Float64Array;
  readonly #doneUs: Float64Array;
  /** When an attempt began to wait for a connection; then for how long it did, µs. */
  readonly #waitedUs: Float64Array;
  readonly #ended: Promise<void>;
  #end = (): void => {};
  #originMs = 0;
  #next = 0;
  #outstanding = 0;
  #dropped = 0;
  #unconnected = 0;
  #utilization = 0;
  #idleBefore = performance.eventLoopUtilization();
  #scheduleEnded = false;
  /** No attempt begins any more. */
  #closed = false;
  #stopped = false;
  #timer: NodeJS.Timeout | undefined;
  #immediate: NodeJS.Immediate | undefined;
  #deadline: NodeJS.Timeout | undefined;

  constructor(load: OpenLoad) {
    const { users, saleId, connections, maxOutstanding } = load;
    this.#load = load;
    this.#recorder = new AttemptRecorder([saleId], users);
    this.#sentUs = new Float64Array(users.length).fill(never);
    this.#doneUs = new Float64Array(users.length).fill(never);
    this.#waitedUs = new Float64Array(users.length);
    this.#lanes = Array.from({ length: connections }, () => new Lane(load, this));
    this.#free = new Ring(connections);
    for (const lane of this.#lanes) this.#free.push(lane);
    this.#waiting = new Ring(maxOutstanding);
    this.#ended = new Promise((resolve) => {
      this.#end = resolve;
    });
  }

  get completed(): number {
    return this.#recorder.completed;
  }

  /** A server that is missing is no error here: the attempts end as unconnected. */
  async openConnections(): Promise<void> {
    for (let from = 0; from < this.#lanes.length && !this.#stopped; from += openAtOnce) {
      const opened = Promise.all(this.#lanes.slice(from, from + openAtOnce).map((lane) => lane.open()));
      await Promise.race([opened, this.#ended]);
    }
  }

  async closeConnections(): Promise<void> {
    await Promise.all(this.#lanes.map((lane) => lane.close()));
  }

  /** Resolves when every attempt has come to its end, or after `stop`. */
  async run(): Promise<void> {
    this.#originMs = performance.now();
    this.#idleBefore = performance.eventLoopUtilization();
    if (!this.#stopped) this.#tick();
    await this.#ended;
    this.#stopped = true;
    this.#endSchedule();
    clearTimeout(this.#timer);
    clearTimeout(this.#deadline);
    clearImmediate(this.#immediate);
  }

  stop(): void {
    this.#stopped = true;
    this.#end();
  }

  /** Takes attempts that are due, after waiting ones. Called by the timer, and soon after every answer. */
  #tick(): void {
    const { schedule, requestTimeoutMs } = this.#load;
    const nowUs = this.#nowUs();
    while (this.#waiting.length > 0 && this.#free.length > 0) {
      const attempt = this.#waiting.shift();
      this.#waitedUs[attempt] = nowUs - (this.#waitedUs[attempt] ?? 0);
      if (nowUs - (schedule[attempt] ?? 0) < requestTimeoutMs * 1_000) this.#hand(attempt);
      else this.#drop();
    }
    const last = this.#closed ? this.#next : schedule.length;
    while (this.#next < last && (schedule[this.#next] ?? 0) <= nowUs) this.#take(this.#next++);
    if (this.#next === last) this.#endSchedule();
    else this.#timer ??= setTimeout(this.#onTimer, Math.ceil(((schedule[this.#next] ?? 0) - nowUs) / 1_000));
    this.#endIfOver();
  }

  readonly #onTimer = (): void => {
    this.#timer = undefined;
    this.#tick();
  };

  readonly #onImmediate = (): void => {
    this.#immediate = undefined;
    this.#tick();
  };

  #take(attempt: number): void {
    this.#outstanding += 1;
    if (this.#outstanding > this.#load.maxOutstanding) this.#drop();
    else if (this.#free.length > 0) this.#hand(attempt);
    else {
      this.#waitedUs[attempt] = this.#nowUs();
      this.#waiting.push(attempt);
    }
  }

  #hand(attempt: number): void {
    this.#free.shift().send(attempt, this.#load.users[attempt] ?? '');
  }

  #drop(): void {
    this.#outstanding -= 1;
    this.#dropped += 1;
  }

  sent(attempt: number): void {
    this.#recorder.invoked(attempt);
    this.#sentUs[attempt] = this.#nowUs();
  }

  answered(attempt: number, status: number, body: string): void {
    const nowUs = this.#nowUs();
    const answer = readAnswer(status, body);
    this.#recorder.answered(attempt, status, answer, body);
    this.#doneUs[attempt] = nowUs;
    if (this.#load.onAnswer?.(answer)) this.#closed = true;
  }

  finished(lane: Lane, attempt: number): void {
    if (this.#stopped) return;
    if (this.#sentUs[attempt] === never) this.#unconnected += 1;
    this.#outstanding -= 1;
    this.#free.push(lane);
    // Not at once: undici is inside its parser, and must not be entered again.
    this.#immediate ??= setImmediate(this.#onImmediate);
  }

  #endSchedule(): void {
    if (this.#scheduleEnded) return;
    this.#scheduleEnded = true;
    this.#utilization = performance.eventLoopUtilization(this.#idleBefore).utilization;
    // An attempt may wait for a connection for a whole timeout, and then for its answer.
    this.#deadline = setTimeout(this.#end, 2 * (this.#load.requestTimeoutMs + timerSlackMs));
    if (!this.#stopped) this.#load.onScheduleEnd?.();
  }

  #endIfOver(): void {
    if (this.#scheduleEnded && this.#outstanding === 0) this.#end();
  }

  #nowUs(): number {
    return (performance.now() - this.#originMs) * 1_000;
  }

  result(): OpenResult {
    const sending = this.#sending();
    const { strangeAnswers } = this.#recorder;
    return { history: this.#history(), strangeAnswers, sending, reasons: whyInvalid(sending, this.#load) };
  }

  /** The recorder's clock began with the recorder; the history shares the schedule's. */
  #history(): HistoryRecord[] {
    return this.#recorder.records().map((record) => ({
      ...record,
      invokedUs: Math.round(this.#sentUs[record.id] ?? never),
      completedUs: record.completedUs === null ? null : Math.round(this.#doneUs[record.id] ?? never),
    }));
  }

  #sending(): Sending {
    const { schedule } = this.#load;
    const scheduled = schedule.length;
    const withoutWait = this.#sentUs.map((us, n) => (us === never ? never : us - (this.#waitedUs[n] ?? 0)));
    const sent = this.#sentUs.reduce((count, us) => (us === never ? count : count + 1), 0);
    const dropped = this.#dropped;
    const unconnected = this.#unconnected;
    return {
      scheduled,
      sent,
      dropped,
      unconnected,
      notBegun: scheduled - sent - dropped - unconnected,
      lagMs: lagOf(this.#sentUs, schedule),
      ownLagMs: lagOf(withoutWait, schedule),
      utilization: this.#utilization,
    };
  }
}

/** First in, first out, with a bound that is known: taking the oldest costs the same however many there are. */
class Ring<T> {
  readonly #items: T[];
  readonly #capacity: number;
  #head = 0;
  #length = 0;

  constructor(capacity: number) {
    this.#items = new Array<T>(capacity);
    this.#capacity = capacity;
  }

  get length(): number {
    return this.#length;
  }

  push(item: T): void {
    this.#items[(this.#head + this.#length) % this.#capacity] = item;
    this.#length += 1;
  }

  /** The oldest; to be asked for only when there is one. */
  shift(): T {
    const item = this.#items[this.#head] as T;
    this.#head = (this.#head + 1) % this.#capacity;
    this.#length -= 1;
    return item;
  }
}
