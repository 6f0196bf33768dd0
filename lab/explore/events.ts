/** What can happen next in a world, but for requests of clients: on its links and at the standby, and its timers. */
import { limits } from '../../src/config/limits.ts';
import type { Event } from './choose.ts';
import type { Link, Network } from './network.ts';
import type { ExploreServers, StandbyControl } from './servers.ts';
import { START_MS, virtual } from './virtual.ts';

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
  /** When something became possible first: see `Event.age`. */
  ageOf(what: object): number;
  /** Called when Postgres has executed a statement. */
  afterStatement(link: Link, name: string): Promise<void>;
}

/** @param found receives the events, in a fixed order */
export function ofWorld(at: World, found: Event[]): void {
  for (const link of at.network.links) ofLink(at, link, found);
  const { standby } = at.servers;
  if (standby?.isAwaited() && !at.isStandbyAway) {
    const age = at.ageOf(at.confirmation);
    const run = () => {
      at.confirmation = {};
      return standby.confirm();
    };
    found.push({ text: 'the standby confirms what it has', task: 'standby', age, weight: 0.5, run });
  }
  if (standby !== null && at.isStandbyAway) ofCommits(at, standby, found);
}

function ofLink(at: World, link: Link, found: Event[]): void {
  const { network } = at;
  const { name } = link;
  const isHeld = !at.isUp(link.owner);
  const event = (text: string, of: object, weight: number, run: () => Promise<void>) =>
    found.push({ text: `${name}: ${text}`, task: name, age: at.ageOf(of), weight, run });
  if (link.state === 'connecting' && !isHeld) event('connect', link.socket, 1, () => network.connect(link));
  const [request] = link.requests;
  const isDeliverable = link.backend !== null && link.waiting === null && !link.isSilent;
  if (request !== undefined && isDeliverable) {
    const run = async () => {
      await network.execute(link);
      if (link.place.store === 'postgres') await at.afterStatement(link, request.name);
    };
    event(`→ ${request.name}`, request, 1, run);
  }
  const [answer] = link.answers;
  if (answer !== undefined && link.state === 'open' && !isHeld && !link.isSilent)
    event(`← ${answer.name}`, answer, 1, () => network.answer(link));
  if (link.place.store === 'postgres' && link.backend !== null) timeoutsOf(at, link, event);
  if (link.state === 'left' && link.waiting === null)
    event('the server closes it', link, 0.5, async () => {
      await network.close(link);
      await at.servers.postgres.settle();
    });
}

/**
 * What the server ends by its clock: a statement that takes too long, and a transaction of a client that does nothing. The server's own
 * timers run by real time, in which a schedule is over before.
 */
function timeoutsOf(
  at: World,
  link: Link,
  event: (text: string, of: object, weight: number, run: () => Promise<void>) => void,
): void {
  const { postgres } = at.servers;
  const isLate = (sinceMs: number) => virtual.nowMs - sinceMs > limits.postgresStatementMs;
  // A commit has no time, however long it waits for the standby.
  if (link.waiting !== null && !postgres.isReplicating(link) && isLate(link.waitingSinceMs))
    event(`the time of ${link.waiting.name} is up`, link.waiting.bytes, 1, () => postgres.cancel(link));
  const idle = link.requests.length > 0 ? null : postgres.idleSince(link);
  if (idle !== null && isLate(idle.sinceMs))
    event('the server ends its idle transaction', idle, 0.3, async () => {
      await postgres.terminate(link);
      await at.network.cut(link);
    });
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
    found.push({ text: `${link.name}: its wait is cancelled`, task: 'operator', age, weight: 0.2, run });
  }
}

/** @param found has all else that can happen */
export function ofTimers(at: World, found: Event[]): void {
  const first = new Map<string, typeof virtual.timers extends Map<number, infer T> ? T : never>();
  for (const timer of virtual.timers.values()) {
    const before = first.get(timer.owner);
    if (before === undefined || timer.dueMs < before.dueMs) first.set(timer.owner, timer);
  }
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
