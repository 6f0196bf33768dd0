/**
 * Schedules for locks, generated from a seed, on real servers, with clients in real processes and proxies for each client. The proxies
 * live in this process, so the network can also fail while a client's process is paused.
 *
 * A schedule is a list of timed steps: contenders claim a lock while faults hit clients. A client is one lock with its own
 * connections and one or two contenders. Several lanes run schedules concurrently. A lane has slots for clients in different processes.
 * A pause stops all clients of a process, including those of other lanes.
 *
 * A holder considers its lease valid when it reads `signal.aborted` as false before it starts the release. A signal never
 * resets, so a lease that was valid at two checks was valid in between. Two leases overlapped if and only if their spans from
 * first to last valid check overlap: a check of one then lies between two checks of the other. All processes of a machine
 * read the same monotonic clock.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { LockClients } from '../../lab/clients/lock-clients.ts';
import type { Claim, LeaseRecord, LockToOpen, PartResult } from '../../lab/clients/protocol.ts';
import { nowNs } from '../../lab/kit/monotonic.ts';
import { seededRandom } from '../../lab/kit/random.ts';
import { overlapsOf } from '../../lab/overlaps.ts';
import { type LinkMode, TcpProxy } from '../../lab/proxy.ts';

/** A claim of one of the clients. */
interface ClaimStep extends Claim {
  readonly does: 'claim';
  readonly client: number;
}

/**
 * crash: the client's process dies, and its connections end. vanish: the machine dies, so its connections stay open. pause: the
 * process is stopped for a while, longer or shorter than its lease. stall: bytes are held for a while. black-hole,
 * lose-replies, lose-requests: bytes are swallowed, and then the affected connections are cut. reconnect: all connections are
 * cut.
 */
const FAULTS = [
  'crash',
  'vanish',
  'pause',
  'pause',
  'stall',
  'stall',
  'black-hole',
  'lose-replies',
  'lose-requests',
  'reconnect',
  'reconnect',
] as const;
const INSTANT: readonly string[] = ['crash', 'vanish', 'reconnect'];

/** A fault of one client. */
interface FaultStep {
  readonly does: (typeof FAULTS)[number];
  readonly client: number;
  readonly atMs: number;
  /** Zero for an instant fault. */
  readonly forMs: number;
}

interface Schedule {
  readonly seed: number;
  readonly clients: number;
  readonly ttlMs: number;
  /** The end: waits are aborted and leases released. */
  readonly endMs: number;
  readonly claims: readonly ClaimStep[];
  readonly faults: readonly FaultStep[];
}

/** A lock and its servers. */
export interface Target {
  readonly lock: string;
  readonly ports: readonly number[];
  servers(ports: readonly number[]): Omit<LockToOpen, 'lock'>;
  /** The shortest and the longest lease, in milliseconds. */
  readonly leaseMs: readonly [number, number];
  /** By default all. */
  readonly faults?: readonly FaultStep['does'][];
}

/** The result of a schedule. */
export interface Outcome {
  readonly schedule: Schedule;
  readonly leases: readonly { readonly client: number; readonly lease: LeaseRecord }[];
  readonly overlaps: readonly string[];
  /** Pauses of its clients' processes. */
  readonly pauses: number;
}

/** A seed always generates the same steps. Their effect depends on real processes and servers, and varies a little. */
function makeSchedule(seed: number, { leaseMs, faults: kinds = FAULTS }: Target): Schedule {
  const next = seededRandom(seed);
  const between = (least: number, most: number) => Math.floor(least + next() * (most - least + 1));
  const clients = between(2, between(2, 4));
  const ttlMs = between(...leaseMs);
  const claims: ClaimStep[] = [];
  for (let client = 0; client < clients; client++) {
    for (const contender of next() < 0.3 ? (['a', 'b'] as const) : (['a'] as const)) {
      let atMs = between(0, 80);
      for (let left = between(2, 3); left > 0; left--) {
        const waitMs = next() < 0.15 ? 0 : between(ttlMs / 2, 3 * ttlMs);
        const holdMs = next() < 0.5 ? between(2, ttlMs / 2) : between(ttlMs / 2, 2 * ttlMs);
        claims.push({ does: 'claim', client, contender, atMs, waitMs, holdMs });
        atMs += between(0, ttlMs);
      }
    }
  }
  const faults: FaultStep[] = [];
  for (let left = between(1, 4); left > 0; left--) {
    const does = kinds[between(0, kinds.length - 1)]!;
    const anyone = between(0, clients - 1);
    // Faults of one client tend to coincide.
    const client = next() < 0.5 ? (faults.at(-1)?.client ?? anyone) : anyone;
    const forMs = INSTANT.includes(does) ? 0 : between(ttlMs / 4, 2 * ttlMs);
    faults.push({ does, client, atMs: between(10, 2 * ttlMs), forMs });
  }
  return { seed, clients, ttlMs, endMs: 3 * ttlMs, claims, faults };
}

const monotonicMs = (): number => nowNs() / 1e6;

/** Minimum time between two pauses of a process, in milliseconds. */
const MIN_RUN_MS = 400;
const MAX_OPEN_ATTEMPTS = 20;

/** A process with clients of several lanes. */
export class Worker {
  readonly clients = new LockClients();
  /** When each pause ended. */
  readonly pauses: number[] = [];
  #isPaused = false;

  /** Pauses the process, unless it is or just was paused. */
  async pause(forMs: number): Promise<void> {
    if (this.#isPaused || monotonicMs() < (this.pauses.at(-1) ?? 0) + MIN_RUN_MS) return;
    this.#isPaused = true;
    this.clients.signal('SIGSTOP');
    await sleep(forMs);
    this.clients.signal('SIGCONT');
    this.#isPaused = false;
    this.pauses.push(monotonicMs());
  }
}

let clients = 0;

/** A place for one client after another; a crash replaces the client. */
class Slot {
  readonly worker: Worker;
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
  }

  async #open(): Promise<void> {
    this.#client = clients++;
    this.#links = await Promise.all(this.#target.ports.map((port) => TcpProxy.open({ port })));
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
      for (const link of this.#links ?? []) link.cut();
    } else if (does === 'crash' || does === 'vanish') {
      this.#hasCrashed = true;
      if (does === 'vanish') this.#set('black-hole');
      await this.worker.clients.send('crash', {}, { client: this.#client });
      if (does === 'crash') this.#set('refuse');
    } else {
      this.#set(does);
      await sleep(forMs);
      if (!this.#hasCrashed) this.#set('pass');
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
  const queue = seeds.map((seed) => makeSchedule(seed, target));
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
  const leases = results.flatMap((result, client) => result.leases.map((lease) => ({ client, lease })));
  const spans = leases
    .map(({ client, lease }) => ({
      holder: `${client}${lease.contender}`,
      from: lease.firstMs,
      to: lease.latestMs.at(-1) ?? 0,
    }))
    .filter(({ from, to }) => from < to);
  const overlaps = [...overlapsOf(spans)].map(
    ({ one, other, from, to }) => `${one.holder} ${other.holder} ${from} +${to - from}`,
  );
  const pauses = slots.flatMap(({ worker }) => worker.pauses.filter((toMs) => toMs > startMs));
  return { schedule, leases, overlaps, pauses: pauses.length };
}
