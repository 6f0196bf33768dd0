/**
 * Carries schedules out: on real servers, by clients in real processes, each client with proxies of its own. The proxies
 * are here, so that a network also fails while a process is stopped.
 *
 * Many schedules run at once, each at a table, whose seats are in different processes. A process that is stopped stops
 * all clients in it, also those of other schedules.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { type LinkMode, ScheduleLink } from './schedule-link.ts';
import {
  type ClientServers,
  findOverlaps,
  type Judged,
  makeSchedule,
  monotonicMs,
  type Order,
  type Overlap,
  type Played,
  print,
  type Reply,
  type Schedule,
  type Span,
  type TroubleStep,
} from './schedules.ts';

/** A lock, and how a client reaches its servers through proxies. */
export interface Target {
  readonly lock: string;
  readonly ports: readonly number[];
  servers(ports: readonly number[]): Omit<ClientServers, 'lock'>;
  /** Length of a lease in milliseconds, from the shortest to the longest. */
  readonly leaseMs: readonly [number, number];
  /** See findOverlaps. */
  readonly allowance?: number;
}

/** What came of a schedule. */
export interface Outcome {
  readonly schedule: Schedule;
  readonly leases: readonly Judged[];
  readonly overlaps: readonly Overlap[];
  readonly contended: number;
  readonly unavailable: number;
  /** How often a process of its clients was stopped. */
  readonly stops: number;
  /** For people: the schedule, and what its holders saw. */
  readonly story: string;
}

type WithoutId<T> = T extends Order ? Omit<T, 'id'> : never;

/** A process goes on for at least so long between two stops, in milliseconds. */
const REST_MS = 400;
const OPEN_TRIES = 20;

/** A process with clients in it. */
export class Worker {
  readonly stops: Span[] = [];
  /** What Node warned of: leaks, and what will not be there any more. */
  readonly warnings: string[] = [];
  readonly #child: ChildProcess;
  readonly #asked = new Map<number, (reply: Reply) => void>();
  #ids = 0;
  #stopped = false;

  constructor() {
    const script = fileURLToPath(new URL('schedule-worker.ts', import.meta.url));
    const args = ['--import', 'tsx', script];
    this.#child = spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'pipe', 'ipc'] });
    createInterface({ input: this.#child.stderr! }).on('line', (line) => {
      process.stderr.write(`${line}\n`);
      if (/^\(node:\d+\) /.test(line)) this.warnings.push(line);
    });
    this.#child.on('message', (reply: Reply) => this.#asked.get(reply.id)?.(reply));
    this.#child.on('exit', (status, signal) => {
      for (const [id, answer] of this.#asked)
        answer({
          id,
          error: `a process of the clients ended (${status ?? signal}); its last words are above`,
        });
    });
  }

  /** @throws what the worker answers as an error */
  async ask(order: WithoutId<Order>): Promise<Played | undefined> {
    const id = this.#ids++;
    const reply = await new Promise<Reply>((resolve) => {
      this.#asked.set(id, resolve);
      this.#child.send({ ...order, id } satisfies Order, (error) => {
        if (error) resolve({ id, error: error.message });
      });
    });
    this.#asked.delete(id);
    if (reply.error !== undefined) throw new Error(reply.error);
    return reply.value;
  }

  /** Stops the process for a while. One that is stopped, or was until just now, is left alone. */
  async stop(forMs: number): Promise<void> {
    const fromMs = monotonicMs();
    if (this.#stopped || fromMs < (this.stops.at(-1)?.toMs ?? 0) + REST_MS) return;
    this.#stopped = true;
    this.#child.kill('SIGSTOP');
    await sleep(forMs);
    this.#child.kill('SIGCONT');
    this.#stopped = false;
    this.stops.push({ fromMs, toMs: monotonicMs() });
  }

  async end(): Promise<void> {
    const ended = once(this.#child, 'exit');
    if (this.#child.kill('SIGKILL')) await ended;
  }
}

let clients = 0;

/** Where one client after another sits: each stays until it crashes. */
class Seat {
  readonly worker: Worker;
  /** When the client's connections were cut in this schedule. */
  cuts: Span[] = [];
  readonly #target: Target;
  #client = 0;
  #links: ScheduleLink[] | null = null;
  #crashed = false;

  constructor(worker: Worker, target: Target) {
    this.worker = worker;
    this.#target = target;
  }

  /** Readies the seat for a schedule. */
  async take(): Promise<void> {
    if (this.#crashed) await this.close();
    // On a busy machine, in a process that is stopped now and then, a connection may take too long.
    for (let tries = 1; this.#links === null; tries++) {
      await this.#open().catch(async (error) => {
        await this.close();
        if (tries === OPEN_TRIES) throw error;
      });
    }
    this.cuts = [];
  }

  async #open(): Promise<void> {
    this.#client = clients++;
    this.#links = await Promise.all(this.#target.ports.map((port) => ScheduleLink.open(port)));
    const { lock, servers } = this.#target;
    const through = { lock, ...servers(this.#links.map(({ port }) => port)) };
    await this.worker.ask({ do: 'open', client: this.#client, servers: through });
  }

  async play(schedule: Schedule, index: number, resource: string, startMs: number): Promise<Played> {
    const claims = schedule.claims.filter(({ client }) => client === index);
    const part = { resource, ttlMs: schedule.ttlMs, startMs, claims };
    return (await this.worker.ask({ do: 'play', client: this.#client, part }))!;
  }

  async suffer({ does, forMs }: TroubleStep): Promise<void> {
    if (this.#crashed) return;
    if (does === 'stop') return this.worker.stop(forMs);
    if (does === 'reconnect') {
      this.#cut((link) => link.cut());
    } else if (does === 'crash' || does === 'vanish') {
      this.#crashed = true;
      if (does === 'vanish') this.#set('black-hole');
      await this.worker.ask({ do: 'crash', client: this.#client });
      if (does === 'crash') this.#set('refuse');
    } else {
      this.#set(does);
      await sleep(forMs);
      if (!this.#crashed) this.#cut((link) => link.set('pass'));
    }
  }

  /** Ends the schedule for the client. */
  async leave(): Promise<void> {
    if (this.#crashed) return;
    await this.worker.ask({ do: 'end', client: this.#client });
  }

  /** The client is gone, whether its lock closes well or not: that is tested elsewhere. */
  async close(): Promise<void> {
    const links = this.#links ?? [];
    if (links.length > 0) this.worker.ask({ do: 'close', client: this.#client }).catch(() => {});
    this.#links = null;
    this.#crashed = false;
    await Promise.all(links.map((link) => link.close()));
  }

  /** Notes when, if any connection was cut. */
  #cut(how: (link: ScheduleLink) => boolean): void {
    const fromMs = monotonicMs();
    const cut = (this.#links ?? []).filter(how).length > 0;
    if (cut) this.cuts.push({ fromMs, toMs: monotonicMs() });
  }

  #set(mode: LinkMode): void {
    for (const link of this.#links ?? []) link.set(mode);
  }
}

/** Plays the schedules of all seeds, at so many tables. */
export async function playAll(
  workers: readonly Worker[],
  target: Target,
  seeds: readonly number[],
  tables: number,
): Promise<Outcome[]> {
  const left = seeds.map((seed) => makeSchedule(seed, target.leaseMs));
  const size = Math.max(...left.map((schedule) => schedule.clients));
  const outcomes: Outcome[] = [];
  const atTable = async (table: number) => {
    const at = (i: number) => workers[(table + i) % workers.length]!;
    const seats = Array.from({ length: size }, (_, i) => new Seat(at(i), target));
    for (let schedule = left.shift(); schedule !== undefined; schedule = left.shift())
      outcomes.push(await play(schedule, seats.slice(0, schedule.clients), target));
    await Promise.all(seats.map((seat) => seat.close()));
  };
  await Promise.all(Array.from({ length: tables }, (_, table) => atTable(table)));
  return outcomes;
}

let resources = 0;

async function play(schedule: Schedule, seats: readonly Seat[], target: Target): Promise<Outcome> {
  await Promise.all(seats.map((seat) => seat.take()));
  const resource = `${target.lock}-${schedule.seed}-${resources++}`;
  const startMs = monotonicMs() + 10;
  const until = (atMs: number) => sleep(Math.max(0, startMs + atMs - monotonicMs()));
  const playing = Promise.all(seats.map((seat, index) => seat.play(schedule, index, resource, startMs)));
  const troubles = schedule.troubles.map(async (trouble) => {
    await until(trouble.atMs);
    await seats[trouble.client]!.suffer(trouble);
  });
  await Promise.all([...troubles, Promise.race([playing, until(schedule.endMs)])]);
  await Promise.all(seats.map((seat) => seat.leave()));
  const played = await playing;
  const leases = played.flatMap((part, client) =>
    part.leases.map((lease) => ({ client, lease, cuts: seats[client]!.cuts })),
  );
  const overlaps = findOverlaps(leases, target.allowance);
  const stops = seats.map(({ worker }) => worker.stops.filter(({ toMs }) => toMs > startMs));
  return {
    schedule,
    leases,
    overlaps,
    contended: played.reduce((sum, part) => sum + part.contended, 0),
    unavailable: played.reduce((sum, part) => sum + part.unavailable, 0),
    stops: stops.flat().length,
    story: `${print(schedule)}\nwhat happened:\n${tell({ startMs, leases, stops, overlaps })}`,
  };
}

interface Happened {
  readonly startMs: number;
  readonly leases: readonly Judged[];
  readonly stops: readonly (readonly Span[])[];
  readonly overlaps: readonly Overlap[];
}

/** Line by line, in the order of time. */
function tell({ startMs, leases, stops, overlaps }: Happened): string {
  const at = (ms: number) => (ms - startMs).toFixed(2).padStart(8);
  const seen = leases.filter(({ lease }) => lease.latestMs.length > 0);
  const held = seen.map(({ client, lease: { contender, firstMs, latestMs, end }, cuts }) => {
    const toMs = latestMs.at(-1)!;
    const near = cuts.filter((cut) => cut.fromMs >= firstMs && cut.fromMs <= toMs + 50);
    const cut = near.map(({ fromMs }) => `; cut off at ${at(fromMs)}`).join('');
    return `${at(firstMs)} … ${at(toMs)} ms  ${client}${contender} saw its lease as valid; ${end}${cut}`;
  });
  const stopped = stops.flatMap((its, client) =>
    its.map(({ fromMs, toMs }) => `${at(fromMs)} … ${at(toMs)} ms  ${client}  was stopped`),
  );
  const both = overlaps.map(
    ({ holders: [one, other], fromMs, forMs }) =>
      `${at(fromMs)} … ${at(fromMs + forMs)} ms  ${one} and ${other} held it at once`,
  );
  return [...held, ...stopped, ...both]
    .sort((one, other) => Number.parseFloat(one) - Number.parseFloat(other))
    .join('\n');
}
