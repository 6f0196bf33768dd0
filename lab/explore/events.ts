/** What can happen next in a world, but for requests of clients: on its links and at the standby, and its timers. */
import { limits } from '../../src/config/limits.ts';
import type { Event } from './choose.ts';
import type { Link, Network, Request } from './network.ts';
import type { ExploreServers, StandbyControl } from './servers.ts';
import { START_MS, type Timer, virtual } from './virtual.ts';

/**
 * A timer that is at least that far off fires up to so much later, milliseconds: else one that a process sets every few milliseconds would fill
 * the schedule.
 */
const FAR_MS = 30;
const LATE_MS = 1_000;
/** A timer that is further off fires only when nothing else can happen. */
const MAX_AHEAD_MS = 60_000;

/** What the events happen to. */
export interface World {
  readonly network: Network;
  readonly servers: Pick<ExploreServers, 'postgres' | 'standby'>;
  /** Whether the synchronous standby confirms nothing. */
  readonly isStandbyAway: boolean;
  /** The next confirmation of what it has. */
  confirmation: object;
  /** Whether a process runs. */
  isUp(owner: string): boolean;
  /** The event of a request, an answer, a link or the like, which is made when it becomes possible first. */
  readonly known: Map<object, Event>;
  /** Called when Postgres has executed a statement. */
  afterStatement(link: Link, name: string): Promise<void>;
}

/** Makes the event of an object. Its age is when it became possible first. */
export function made(
  at: World,
  of: object,
  text: string,
  task: string,
  weight: number,
  run: Event['run'],
): Event {
  const now: Event = { text, task, age: at.known.size + 1, weight, dueMs: 0, run };
  at.known.set(of, now);
  return now;
}

/** The same for what happens on a link. */
const madeOn = (at: World, { name }: Link, of: object, text: string, weight: number, run: Event['run']) =>
  made(at, of, `${name}: ${text}`, name, weight, run);

/** @param found receives the events, in a fixed order */
export function ofWorld(at: World, found: Event[]): void {
  for (const link of at.network.links) ofLink(at, link, found);
  const { standby } = at.servers;
  if (standby?.isAwaited() && !at.isStandbyAway) {
    const run = () => {
      at.confirmation = {};
      return standby.confirm();
    };
    const text = 'the standby confirms what it has';
    const known = at.known.get(at.confirmation);
    found.push(known ?? made(at, at.confirmation, text, 'standby', 0.5, run));
  }
  if (standby !== null && at.isStandbyAway) ofCommits(at, standby, found);
}

function ofLink(at: World, link: Link, found: Event[]): void {
  const { network, known } = at;
  const request = link.requests[0];
  const answer = link.answers[0];
  if (request !== undefined && link.backend !== null && link.waiting === null && !link.isSilent)
    found.push(known.get(request) ?? delivery(at, link, request));
  if (link.state === 'connecting' || answer !== undefined) {
    const isHeld = !at.isUp(link.owner);
    if (link.state === 'connecting' && !isHeld)
      found.push(
        known.get(link.socket) ?? madeOn(at, link, link.socket, 'connect', 1, () => network.connect(link)),
      );
    if (answer !== undefined && link.state === 'open' && !isHeld && !link.isSilent)
      found.push(
        known.get(answer) ?? madeOn(at, link, answer, `← ${answer.name}`, 1, () => network.answer(link)),
      );
  }
  if (link.place.store === 'postgres' && link.backend !== null) timeoutsOf(at, link, found);
  if (link.state === 'left' && link.waiting === null) {
    const run = async () => {
      await network.close(link);
      await at.servers.postgres.settle();
    };
    found.push(known.get(link) ?? madeOn(at, link, link, 'the server closes it', 0.5, run));
  }
}

function delivery(at: World, link: Link, request: Request): Event {
  return madeOn(at, link, request, `→ ${request.name}`, 1, async () => {
    await at.network.execute(link);
    if (link.place.store === 'postgres') await at.afterStatement(link, request.name);
  });
}

/**
 * What the server ends by its clock: a statement that takes too long, and a transaction of a client that does nothing. Its own timers do
 * not run (lab/servers/clock.c).
 */
function timeoutsOf(at: World, link: Link, found: Event[]): void {
  const { postgres } = at.servers;
  const isLate = (sinceMs: number) => virtual.nowMs - sinceMs > limits.postgresStatementMs;
  const { waiting } = link;
  // A commit has no time, however long it waits for the standby.
  if (waiting !== null && !postgres.isReplicating(link) && isLate(link.waitingSinceMs)) {
    const run = () => postgres.cancel(link);
    const text = `the time of ${waiting.name} is up`;
    found.push(at.known.get(waiting.bytes) ?? madeOn(at, link, waiting.bytes, text, 1, run));
  }
  const idle = link.requests.length > 0 ? null : postgres.idleSince(link);
  if (idle !== null && isLate(idle.sinceMs)) {
    const run = async () => {
      await postgres.terminate(link);
      await at.network.cut(link);
    };
    const text = 'the server ends its idle transaction';
    found.push(at.known.get(idle) ?? madeOn(at, link, idle, text, 0.3, run));
  }
}

/** While the standby is away, an operator may end the wait of a commit. */
function ofCommits(at: World, standby: StandbyControl, found: Event[]): void {
  const { postgres } = at.servers;
  for (const link of at.network.links) {
    if (!postgres.isReplicating(link)) continue;
    const run = async () => {
      await standby.fallsBehind();
      await postgres.cancel(link);
    };
    const age = 1e7 + link.id;
    found.push({
      text: `${link.name}: its wait is cancelled`,
      task: 'operator',
      age,
      weight: 0.2,
      dueMs: 0,
      run,
    });
  }
}

/** @param found has all else that can happen */
export function ofTimers(at: World, found: Event[]): void {
  const first = new Map<string, Timer>();
  virtual.timers.forEach((timer) => {
    const before = first.get(timer.owner);
    if (before === undefined || timer.dueMs < before.dueMs) first.set(timer.owner, timer);
  });
  for (const [owner, timer] of first) {
    const laterMs = Math.max(0, timer.dueMs - virtual.nowMs);
    if (!at.isUp(owner) || (laterMs > MAX_AHEAD_MS && found.length > 0)) continue;
    // The oldest of all others comes first, and the earliest of the timers.
    found.push({
      text: `${owner}: a timer fires`,
      task: `${owner} timer`,
      age: 1e9 + timer.dueMs - 1.7e12,
      weight: laterMs > 100 ? 0.03 : 0.2,
      dueMs: timer.dueMs,
      run: () => {
        if (laterMs > FAR_MS)
          virtual.nowMs = START_MS + Math.ceil((timer.dueMs - START_MS) / LATE_MS) * LATE_MS;
        return virtual.as(owner, () => virtual.fire(timer));
      },
    });
  }
}
