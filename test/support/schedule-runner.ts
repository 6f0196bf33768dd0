/**
 * Runs schedules on real servers, with clients in real processes and proxies for each client. The proxies live in this
 * process, so the network can also fail while a client's process is paused.
 *
 * Several lanes run schedules concurrently. A lane has slots for clients in different processes. A pause stops all clients of a
 * process, including those of other lanes.
 */

import { setTimeout as sleep } from 'node:timers/promises';
import { LockClients } from '../../lab/clients/lock-clients.ts';
import type { LockToOpen, PartResult } from '../../lab/clients/protocol.ts';
import { nowNs } from '../../lab/kit/monotonic.ts';
import { type LinkMode, TcpProxy } from '../../lab/proxy.ts';
import {
  type ClientLease,
  type FaultStep,
  findOverlaps,
  makeSchedule,
  type Schedule,
  type Span,
} from './schedules.ts';

/** A lock and its servers. */
export interface Target {
  readonly lock: string;
  readonly ports: readonly number[];
  servers(ports: readonly number[]): Omit<LockToOpen, 'lock'>;
  /** The shortest and the longest lease, in milliseconds. */
  readonly leaseMs: readonly [number, number];
  /** As in findOverlaps. */
  readonly allowance?: number;
}

/** The result of a schedule. */
export interface Outcome {
  readonly schedule: Schedule;
  readonly leases: readonly ClientLease[];
  readonly overlaps: readonly string[];
  /** Pauses of its clients' processes. */
  readonly pauses: number;
}

const monotonicMs = (): number => nowNs() / 1e6;

/** Minimum time between two pauses of a process, in milliseconds. */
const MIN_RUN_MS = 400;
const MAX_OPEN_ATTEMPTS = 20;

/** A process with clients of several lanes. */
export class Worker {
  readonly clients = new LockClients();
  readonly pauses: Span[] = [];
  #isPaused = false;

  /** Pauses the process, unless it is or just was paused. */
  async pause(forMs: number): Promise<void> {
    const fromMs = monotonicMs();
    if (this.#isPaused || fromMs < (this.pauses.at(-1)?.toMs ?? 0) + MIN_RUN_MS) return;
    this.#isPaused = true;
    this.clients.signal('SIGSTOP');
    await sleep(forMs);
    this.clients.signal('SIGCONT');
    this.#isPaused = false;
    this.pauses.push({ fromMs, toMs: monotonicMs() });
  }
}

let clients = 0;

/** A place for one client after another; a crash replaces the client. */
class Slot {
  readonly worker: Worker;
  /** Cuts of the client's connections in this schedule. */
  cuts: Span[] = [];
  readonly #target: Target;
  #client = 0;
  #links: TcpProxy[] | null = null;
  #hasCrashed = false;

  constructor(worker: Worker, target: Target) {
    this.worker = worker;
    this.#target = target;
  }

  /** Opens a client unless there is one. */
  async prepare(): Promise<void> {
    if (this.#hasCrashed) await this.close();
    // On a busy machine with paused processes a connection may time out.
    for (let attempt = 1; this.#links === null; attempt++) {
      await this.#open().catch(async (error) => {
        await this.close();
        if (attempt === MAX_OPEN_ATTEMPTS) throw error;
      });
    }
    this.cuts = [];
  }

  async #open(): Promise<void> {
    this.#client = clients++;
    this.#links = await Promise.all(
      this.#target.ports.map((port) => TcpProxy.open({ port, remembers: false })),
    );
    const { lock, servers } = this.#target;
    const through = { lock, ...servers(this.#links.map(({ port }) => port)) };
    await this.worker.clients.send('open', through, { client: this.#client });
  }

  async run(schedule: Schedule, index: number, resource: string, startMs: number): Promise<PartResult> {
    const claims = schedule.claims.filter(({ client }) => client === index);
    const part = { resource, ttlMs: schedule.ttlMs, startMs, claims };
    return this.worker.clients.send('claim', part, { client: this.#client });
  }

  async inflict({ does, forMs }: FaultStep): Promise<void> {
    if (this.#hasCrashed) return;
    if (does === 'pause') return this.worker.pause(forMs);
    if (does === 'reconnect') {
      this.#cut((link) => link.cut());
    } else if (does === 'crash' || does === 'vanish') {
      this.#hasCrashed = true;
      if (does === 'vanish') this.#set('black-hole');
      await this.worker.clients.send('crash', {}, { client: this.#client });
      if (does === 'crash') this.#set('refuse');
    } else {
      this.#set(does);
      await sleep(forMs);
      if (!this.#hasCrashed) this.#cut((link) => link.set('pass'));
    }
  }

  /** Ends the schedule for the client. */
  async end(): Promise<void> {
    if (this.#hasCrashed) return;
    await this.worker.clients.send('end', {}, { client: this.#client });
  }

  /** Does not wait for the lock to close: other tests cover that. */
  async close(): Promise<void> {
    const links = this.#links ?? [];
    if (links.length > 0) this.worker.clients.send('close', {}, { client: this.#client }).catch(() => {});
    this.#links = null;
    this.#hasCrashed = false;
    await Promise.all(links.map((link) => link.close()));
  }

  /** Records the time if a connection was cut. */
  #cut(how: (link: TcpProxy) => boolean): void {
    const fromMs = monotonicMs();
    const cut = (this.#links ?? []).filter(how).length > 0;
    if (cut) this.cuts.push({ fromMs, toMs: monotonicMs() });
  }

  #set(mode: LinkMode): void {
    for (const link of this.#links ?? []) link.set(mode);
  }
}

/** Runs the schedules of all seeds in concurrent lanes. */
export async function runAll(
  workers: readonly Worker[],
  target: Target,
  seeds: readonly number[],
  lanes: number,
): Promise<Outcome[]> {
  const queue = seeds.map((seed) => makeSchedule(seed, target.leaseMs));
  const size = Math.max(...queue.map((schedule) => schedule.clients));
  const outcomes: Outcome[] = [];
  const runLane = async (lane: number) => {
    const at = (i: number) => workers[(lane + i) % workers.length]!;
    const slots = Array.from({ length: size }, (_, i) => new Slot(at(i), target));
    for (let schedule = queue.shift(); schedule !== undefined; schedule = queue.shift())
      outcomes.push(await run(schedule, slots.slice(0, schedule.clients), target));
    await Promise.all(slots.map((slot) => slot.close()));
  };
  await Promise.all(Array.from({ length: lanes }, (_, lane) => runLane(lane)));
  return outcomes;
}

let resources = 0;

async function run(schedule: Schedule, slots: readonly Slot[], target: Target): Promise<Outcome> {
  await Promise.all(slots.map((slot) => slot.prepare()));
  const resource = `${target.lock}-${schedule.seed}-${resources++}`;
  const startMs = monotonicMs() + 10;
  const until = (atMs: number) => sleep(Math.max(0, startMs + atMs - monotonicMs()));
  const running = Promise.all(slots.map((slot, index) => slot.run(schedule, index, resource, startMs)));
  const faults = schedule.faults.map(async (fault) => {
    await until(fault.atMs);
    await slots[fault.client]!.inflict(fault);
  });
  await Promise.all([...faults, Promise.race([running, until(schedule.endMs)])]);
  await Promise.all(slots.map((slot) => slot.end()));
  const results = await running;
  const leases = results.flatMap((result, client) =>
    result.leases.map((lease) => ({ client, lease, cuts: slots[client]!.cuts })),
  );
  const overlaps = findOverlaps(leases, target.allowance);
  const pauses = slots.map(({ worker }) => worker.pauses.filter(({ toMs }) => toMs > startMs));
  return {
    schedule,
    leases,
    overlaps,
    pauses: pauses.flat().length,
  };
}
