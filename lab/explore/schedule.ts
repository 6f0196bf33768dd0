/**
 * One world: whole pipelines in this process, their clients, and what goes wrong, in an order that is chosen event by event. Several sales
 * are sold in it, one after the other; what is chosen for one of them is a schedule.
 *
 *   start the processes ──▶ for each sale: load it ──▶ events, as chosen ──▶ what went wrong ends
 *        ──▶ time passes, and the background work settles ──▶ the rest of the stock is bought ──▶ the audit
 *
 * An event is the arrival of a request at a store, of an answer at a process, a timer that fires, a client's next request, or a fault.
 */
import { failureOf } from '../../src/service/pipeline.ts';
import { groupBy } from '../kit/group-by.ts';
import { type Choose, type Event, oldest } from './choose.ts';
import { Clients } from './clients.ts';
import { ofTimers, ofWorld, type World } from './events.ts';
import { twinOf } from './extras.ts';
import type { Fault } from './faults.ts';
import { Invariants } from './invariants.ts';
import { type Link, Network, type Place } from './network.ts';
import { Answered, isOperation, operate, twinsOf } from './operations.ts';
import { type ExploredProcess, portsOf, startParts, type Target, usesRedis } from './process.ts';
import { Receiver } from './receiver.ts';
import { RedisBackend } from './redis-backends.ts';
import { type ExploreServers, REDIS_SERVERS } from './servers.ts';
import { START_MS, virtual } from './virtual.ts';
import { type Action, describe, type Workload } from './workload.ts';

/** One event takes this long, milliseconds. */
const EVENT_MS = 0.1;
/** Later ones end a schedule that never becomes quiet. */
const MAX_DRAIN_STEPS = 5_000;
/** After so many, statements may wait for each other. */
const MANY_STEPS = 1_000;

export interface SalePlan {
  /** Its id. */
  readonly n: number;
  readonly workload: Workload;
  readonly faults: readonly Fault[];
}

export interface Plan extends Target {
  /** Whether Postgres has a synchronous standby. */
  readonly isSynchronous: boolean;
  readonly processes: number;
  readonly sales: readonly SalePlan[];
  /** Seeds what is random in the code under test. */
  readonly seed: number;
  /** Whether sales have what extras.ts adds. */
  readonly hasExtras?: boolean;
  /** Whether what could have happened instead is recorded. */
  readonly isRecorded?: boolean;
}

/** Steps of a sale are counted from a multiple of it. */
const SALE_STEPS = 10_000;

interface Running {
  readonly script: readonly Action[];
  next: number;
  /** The one that was sent again. */
  repeated: Action | null;
  /** Null: nothing is asked. */
  asking: { readonly at: ExploredProcess } | null;
}

/** The network of the schedule that runs now. */
export const current: { network: Network | null } = { network: null };

export class Schedule implements World {
  readonly plan: Plan;
  readonly servers: ExploreServers;
  readonly clients: Clients;
  readonly network: Network;
  readonly receiver = new Receiver();
  readonly answered = new Answered();
  readonly invariants: Invariants;
  readonly processes: ExploredProcess[] = [];
  /** Every event, in order. */
  readonly trace: string[] = [];
  /** Those that were not the oldest, by step. */
  readonly deviations = new Map<number, string>();
  /** At each chosen event, those that could have happened instead of the oldest. */
  readonly alternatives: { readonly step: number; readonly texts: readonly string[] }[] = [];
  /** Kinds of what went wrong. */
  readonly faults = new Set<string>();
  readonly findings = new Set<string>();
  /** Ten thousand times the sale that is sold, and the events since it began. */
  step = 0;
  /** The sale that is sold now; 0: none. */
  sale = 0;
  confirmation = {};
  /** Whether the synchronous standby confirms nothing. */
  isStandbyAway = false;
  /** The logical Redis that new connections of each process reach. */
  readonly redisOf: number[] = [];
  #lastRedis = 0;
  /** The Redis of the most processes, after the last failover. */
  mainRedis = 0;
  #running: readonly Running[] = [];
  readonly known = new Map<object, Event>();
  /** Every process by its name, also one that has died. */
  readonly #names = new Map<string, ExploredProcess>();

  constructor(plan: Plan, servers: ExploreServers) {
    this.plan = plan;
    this.servers = servers;
    this.clients = new Clients(plan, (error, doing) => this.defect(doing, error));
    this.invariants = new Invariants(servers.sql, (what) => this.found(what));
    const places = new Map<number, Place>();
    for (let n = 0; n < plan.processes; n++) {
      this.redisOf.push(0);
      const { postgres, redis } = portsOf(n);
      const place = { owner: () => this.processes[n]!.name };
      const toPostgres = async (link: Link) => servers.postgres.backendOf(link);
      const toRedis = (link: Link) => new RedisBackend(servers.redis, link, this.redisOf[n]!).open();
      places.set(postgres, { ...place, store: 'postgres', connect: toPostgres });
      places.set(redis, { ...place, store: 'redis', connect: toRedis });
    }
    this.network = new Network(places);
    current.network = this.network;
    globalThis.fetch = this.receiver.fetch as typeof fetch;
    servers.postgres.answered = async (link, request, reply) => {
      await this.network.replied(link, request, reply);
      await this.afterStatement(link, request.name);
    };
    servers.redis.pushed = (link, bytes) => {
      if (link.state === 'open') link.answers.push({ bytes, name: 'message' });
    };
  }

  /** Begins to sell a sale. */
  sell({ n, workload }: SalePlan): void {
    this.sale = n;
    this.step = n * SALE_STEPS;
    this.#running = workload.scripts.map((script) => ({ script, next: 0, repeated: null, asking: null }));
  }

  /** The sales are over. */
  close(): void {
    this.sale = 0;
    this.step = 0;
    this.#running = [];
  }

  /** Ids. */
  get sales(): readonly number[] {
    return [...this.plan.sales.map(({ n }) => n), ...twinsOf(this.plan).map(({ id }) => id)];
  }

  get usesRedis(): boolean {
    return usesRedis(this.plan);
  }

  defect(where: string, error: unknown): void {
    this.found(`${where}: ${(error as Error).stack ?? error}`);
  }

  found(what: string): void {
    this.findings.add(what);
  }

  /** Every logical Redis that has been used. */
  get redises(): readonly number[] {
    return Array.from({ length: this.#lastRedis + 1 }, (_, n) => n);
  }

  /** The logical Redis that no process has used. */
  nextRedis(): number {
    this.#lastRedis = Math.min(this.#lastRedis + 1, REDIS_SERVERS - 1);
    return this.#lastRedis;
  }

  /** Starts a process, or starts it again. */
  async start(n: number): Promise<void> {
    const before = this.processes[n];
    const name = before === undefined ? `p${n + 1}` : `${before.name}'`;
    const started: ExploredProcess = { name, state: 'starting' };
    this.processes[n] = started;
    this.#names.set(name, started);
    const onDefect = (error: unknown, doing: string) => this.defect(`${name}, ${doing}`, error);
    await virtual.as(name, () => {
      const { databaseUrl } = this.servers;
      const isAgain = before !== undefined;
      void startParts({ ...this.plan, databaseUrl, ports: portsOf(n), isAgain, onDefect }).then(
        (parts) => {
          started.parts = parts;
          if (started.state === 'starting') started.state = 'up';
        },
        () => {
          started.state = 'dead';
        },
      );
    });
  }

  /** What can happen now. */
  events(withClients = true): Event[] {
    const found: Event[] = [];
    ofWorld(this, found);
    if (withClients) this.#ofClients(found);
    this.receiver.events(this, found);
    ofTimers(this, found);
    return found;
  }

  isUp(owner: string): boolean {
    const state = this.#names.get(owner)?.state;
    return state === 'up' || state === 'starting';
  }

  #ofClients(found: Event[]): void {
    for (let n = 0; n < this.#running.length; n++) {
      const running = this.#running[n]!;
      const action = running.script[running.next];
      if (action === undefined || running.asking !== null) continue;
      const at = this.processes[action.at]!;
      if (at.state !== 'up') continue;
      if (!this.clients.canSend(action)) continue;
      // A replay finds an event by its text; with extras, two clients often ask for the same.
      const which = this.plan.hasExtras ? ` (${n})` : '';
      const who = 'user' in action ? action.user : action.kind === 'pass' ? 'loop' : 'operator';
      found.push({
        text: `${who} → ${at.name}: ${describe(action)}${which}`,
        task: `client ${n}`,
        age: 1e6 + n,
        weight: 0.7,
        dueMs: 0,
        run: () => this.#send(running, action, at),
      });
    }
  }

  async #send(running: Running, action: Action, at: ExploredProcess): Promise<void> {
    running.next++;
    const asking = { at };
    running.asking = asking;
    await virtual.as(at.name, () => {
      void this.#ask(action, at.parts!).then((outcome) => {
        if (running.asking !== asking) return;
        running.asking = null;
        // Who does not know whether it happened asks again, once.
        if (outcome === 'unknown' && running.repeated !== action) {
          running.repeated = action;
          running.next--;
        }
      });
    });
  }

  #ask(action: Action, parts: NonNullable<ExploredProcess['parts']>) {
    if (isOperation(action))
      return operate(action, this.sale, parts, this.clients, this.answered).catch((error) => {
        if (failureOf(error) === 'defect') this.defect(action.kind, error);
        return null;
      });
    const isTwin = action.kind === 'buy' && action.isTwin;
    return this.clients.send(action, isTwin ? twinOf(this.sale) : this.sale, parts);
  }

  /** The clients of a process that died get no answer. */
  forget(process: ExploredProcess): void {
    this.receiver.forget(process.name);
    for (const running of this.#running) if (running.asking?.at === process) running.asking = null;
    for (const [id, timer] of virtual.timers) if (timer.owner === process.name) virtual.timers.delete(id);
  }

  get isQuiet(): boolean {
    const isAsking = this.#running.some(({ asking }) => asking !== null);
    return !isAsking && this.processes.every(({ state }) => state !== 'starting');
  }

  /** Whether no client has anything left to ask. */
  get isAsked(): boolean {
    return this.#running.every(({ script, next, asking }) => {
      const action = script[next];
      return asking === null && (action === undefined || !this.clients.canSend(action));
    });
  }

  /** Whether every process that is up is connected to Redis. */
  get isConnected(): boolean {
    const isOpen = ({ name, state }: ExploredProcess) =>
      state !== 'up' ||
      this.network.links.some((link) => {
        return link.owner === name && link.place.store === 'redis' && link.state === 'open';
      });
    return !this.usesRedis || this.processes.every(isOpen);
  }

  /** Lets one event happen. */
  async take(choose: Choose, withClients = true): Promise<boolean> {
    const events = this.events(withClients);
    if (events.length === 0) return false;
    const event = choose(events, this.step);
    const first = choose === oldest ? event : oldest(events, this.step);
    if (this.plan.isRecorded && withClients) {
      const texts = events.filter((one) => one !== first).map(({ text }) => text);
      this.alternatives.push({ step: this.step, texts });
    }
    if (event !== first) this.deviations.set(this.step, event.text);
    await this.#happen(event);
    return true;
  }

  async #happen(event: Event): Promise<void> {
    this.note(event.text);
    await event.run();
    await this.invariants.compare(this.promised);
  }

  /** What was answered, and counts still; null: Postgres has lost data. */
  get promised(): Answered | null {
    return this.clients.excuses.hasLostPostgres ? null : this.answered;
  }

  note(text: string): void {
    this.step++;
    virtual.nowMs += EVENT_MS;
    this.trace.push(`${this.step}  ${(virtual.nowMs - START_MS).toFixed(1)} ms  ${text}`);
  }

  /** Lets what is in progress end, in order. */
  async drain(until: () => boolean = () => this.isQuiet): Promise<void> {
    for (let n = 0; !until(); n++) {
      if (n === MAX_DRAIN_STEPS) return this.found('the schedule does not become quiet');
      if (n % MANY_STEPS === MANY_STEPS - 1) await this.servers.postgres.breakCircle();
      if (!(await this.take(oldest, false))) return this.found('a request is never answered');
    }
  }

  /** Lets a process do something, beside what is in progress, until it is done. */
  async finish(process: ExploredProcess, work: () => Promise<unknown>): Promise<void> {
    let isOver = false;
    await virtual.as(process.name, () => {
      void work().finally(() => {
        isOver = true;
      });
    });
    await this.drain(() => isOver);
  }

  /** Lets time pass, every timer that is due then fire, and every request and answer on the way arrive. */
  async elapse(ms: number): Promise<void> {
    const untilMs = virtual.nowMs + ms;
    virtual.nowMs = untilMs;
    for (let n = 0; n < MAX_DRAIN_STEPS; n++) {
      if (n % MANY_STEPS === MANY_STEPS - 1) await this.servers.postgres.breakCircle();
      const events = this.events(false).filter(({ dueMs }) => dueMs <= untilMs);
      if (events.length === 0) return;
      await this.#happen(oldest(events, this.step));
    }
    this.found('the schedule does not become quiet');
  }

  async afterStatement(link: Link, name: string): Promise<void> {
    if (this.servers.postgres.isOpen(link)) return; // its transaction is not over
    if (this.plan.hasExtras && !READS.test(name)) this.invariants.isDue = true;
    if (PLACES.test(name)) await this.noteCommitted();
  }

  /** When an order is committed counts where an answer may come before. */
  async noteCommitted(): Promise<void> {
    if (this.plan.confirm === 'accepted' || this.clients.excuses.hasLostRedis)
      this.clients.excuses.committed(await this.servers.committed());
  }

  /**
   * Redis loses data: what it had, and neither it nor Postgres has afterwards.
   * @param isKept whether the main Redis still has all that was written there
   */
  async loseRedis(lose: () => Promise<void>, isKept = false): Promise<void> {
    if (!this.usesRedis) return lose();
    const had = await this.servers.reserved(this.redises);
    await lose();
    const orders = new Set(await this.servers.committed());
    this.clients.excuses.committed([...orders]); // also those whose wait for the standby was cancelled
    const left = this.redises.filter((one) => one !== this.mainRedis);
    const all = isKept ? await this.servers.reservations(this.mainRedis, left) : [];
    const reserved = all.filter(({ orderId }) => !orders.has(orderId));
    const displaced = new Set<string>();
    for (const ofSale of groupBy(reserved, ({ saleId }) => saleId).values()) {
      const units = ofSale.reduce((total, one) => total + one.units, 0);
      if (units > ofSale[0]!.free) for (const { orderId } of ofSale) displaced.add(orderId);
    }
    const kept = reserved.map(({ orderId }) => orderId).filter((order) => !displaced.has(order));
    this.clients.excuses.lostRedis({ had, kept: new Set([...orders, ...kept]), displaced });
  }
}

/** Statements that change nothing that is compared. */
const READS =
  /^(SELECT (?!name_next)|BEGIN|SET|ROLLBACK|loaded-in|read-for|due-|sold-out|lock-|outbox-|wait-for|(INSERT|UPDATE) redis_epochs)/;

/** Statements that may commit an order. */
const PLACES = /^(COMMIT|WITH|place-|commit-orders|sell|insert|take)/;
