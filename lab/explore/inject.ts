/** How each fault happens. */
import type { Fault, FaultKind } from './faults.ts';
import type { Link } from './network.ts';
import type { Schedule } from './schedule.ts';
import { virtual } from './virtual.ts';

/** Longer than a claim lives, so that what is left is abandoned. */
export const CLAIM_MS = 7_000;
const SHORT_MS = 2_500;

/** Ends a fault; null: it has no end. */
type Ending = (() => Promise<void>) | null;

/** Lets a fault happen. @returns what ends it; null also when it cannot happen now: then it is not counted */
export async function inject(schedule: Schedule, { kind, which }: Fault): Promise<Ending> {
  const { step } = schedule;
  const ending = await HAPPENS[kind](schedule, which);
  if (schedule.step > step) schedule.faults.add(kind);
  return ending;
}

type Happen = (schedule: Schedule, which: number) => Promise<Ending>;

const oneOf = <T>(list: readonly T[], which: number): T | undefined => list[Math.floor(which * list.length)];

/** One on which something is on its way, if there is one. */
function openLinkOf({ network }: Schedule, which: number): Link | undefined {
  const open = network.links.filter(({ state }) => state === 'open');
  const busy = open.filter(
    ({ requests, answers, waiting }) => requests.length + answers.length > 0 || waiting !== null,
  );
  return oneOf(busy, which) ?? oneOf(open, which);
}

const HAPPENS: Readonly<Record<FaultKind, Happen>> = {
  async 'cut a connection'(schedule, which) {
    const link = openLinkOf(schedule, which);
    if (link === undefined) return null;
    schedule.note(`fault: ${link.name} is cut off`);
    await schedule.network.cut(link);
    return null;
  },
  async 'silence a connection'(schedule, which) {
    const link = openLinkOf(schedule, which);
    if (link === undefined) return null;
    schedule.note(`fault: ${link.name} is silent`);
    link.isSilent = true;
    return async () => {
      schedule.note(`${link.name} is not silent any more`);
      link.isSilent = false;
    };
  },
  async 'end a process'(schedule, which) {
    const { processes, network } = schedule;
    const process = oneOf(processes, which)!;
    if (process.state !== 'up') return null;
    schedule.note(`fault: ${process.name} is killed`);
    process.state = 'dead';
    schedule.forget(process);
    for (const link of network.links) if (link.owner === process.name) network.left(link);
    return async () => {
      schedule.note(`${process.name} is started again`);
      await schedule.start(processes.indexOf(process));
    };
  },
  async 'freeze a process'(schedule, which) {
    const process = oneOf(schedule.processes, which)!;
    if (process.state !== 'up') return null;
    schedule.note(`fault: ${process.name} is frozen`);
    process.state = 'frozen';
    return async () => {
      if (process.state !== 'frozen') return;
      schedule.note(`${process.name} goes on`);
      process.state = 'up';
    };
  },
  async 'time passes'(schedule, which) {
    const ms = which < 0.5 ? SHORT_MS : CLAIM_MS;
    schedule.note(`fault: ${ms} ms pass`);
    virtual.nowMs += ms;
    return null;
  },
  async 'empty Redis'(schedule) {
    schedule.note('fault: Redis is emptied');
    await schedule.loseRedis(() => schedule.servers.emptyRedis(schedule.mainRedis));
    return null;
  },
  async 'restore Redis from a snapshot'(schedule) {
    const saved = await saveRedis(schedule);
    return async () => {
      schedule.note('fault: Redis is restored from the snapshot');
      await schedule.loseRedis(() => moveRedis(schedule, saved, () => true));
    };
  },
  async 'promote a copy of Redis'(schedule, which) {
    // The copy has what the primary had then, or has now.
    const saved = which < 0.5 ? await saveRedis(schedule) : null;
    return async () => {
      const copy = saved ?? (await saveRedis(schedule));
      schedule.note('fault: the copy of Redis is promoted');
      const move = () => moveRedis(schedule, copy, () => true);
      await (saved === null ? move() : schedule.loseRedis(move));
    };
  },
  async 'lead a process to another Redis'(schedule, which) {
    const { processes, redisOf } = schedule;
    const [process, rest] = split(which, processes.length);
    const before = redisOf[process]!;
    const others = schedule.redises.filter((one) => one !== before);
    const [kind, moment] = split(rest, 2);
    const to = (kind === 1 ? oneOf(others, moment) : undefined) ?? (await saveRedis(schedule));
    schedule.note(`fault: ${processes[process]!.name} reaches Redis ${to} from now on, instead of ${before}`);
    await moveRedis(schedule, to, (n) => n === process);
    return async () => {
      const back = moment < 0.5 ? before : to;
      schedule.note(`fault: every process reaches Redis ${back}`);
      await schedule.loseRedis(() => moveRedis(schedule, back, () => true), true);
    };
  },
  async 'cancel a statement'(schedule) {
    const { network, servers } = schedule;
    const link = network.links.find(({ place, waiting }) => place.store === 'postgres' && waiting !== null);
    if (link === undefined) return null;
    schedule.note(`fault: the statement of ${link.name} is cancelled`);
    await servers.standby?.fallsBehind();
    await servers.postgres.cancel(link);
    return null;
  },
  async 'the standby is away'(schedule, which) {
    schedule.note('fault: the standby is away');
    schedule.isStandbyAway = true;
    return async () => {
      if (which < 0.5) return HAPPENS['promote the standby of Postgres'](schedule, 1).then(() => {});
      schedule.note('the standby is back');
      schedule.isStandbyAway = false;
    };
  },
  async 'promote the standby of Postgres'(schedule, which) {
    const { standby } = schedule.servers;
    if (standby !== null) {
      // What waits for it has arrived there, or has not.
      const hasAll = which < 0.5 && !schedule.isStandbyAway;
      schedule.note(`fault: the standby is promoted${hasAll ? ', with all that waits for it' : ''}`);
      await promote(schedule, async () => {
        if (hasAll) await standby.confirm();
        await standby.fallsBehind();
      });
      schedule.isStandbyAway = false;
      schedule.clients.excuses.rolledBack(await schedule.servers.committed());
      schedule.invariants.rolledBack();
      return null;
    }
    schedule.note('the standby of Postgres has everything up to here');
    await schedule.servers.sql.query('SELECT explore.save()');
    const savedUs = virtual.nowMs * 1_000;
    return async () => {
      schedule.note('fault: the standby of Postgres is promoted');
      await promote(schedule);
      schedule.clients.excuses.lostPostgres(savedUs);
    };
  },
};

/** Two choices of one: of the first `count` possibilities, and again 0 ≤ n < 1. */
function split(which: number, count: number): readonly [first: number, rest: number] {
  const first = Math.floor(which * count);
  return [first, which * count - first];
}

/** @returns the logical Redis with a copy of what the main one has now */
async function saveRedis(schedule: Schedule): Promise<number> {
  const copy = schedule.nextRedis();
  schedule.note('a copy of Redis has everything up to here');
  await schedule.servers.copyRedis(schedule.mainRedis, copy);
  return copy;
}

/** Cuts processes off their Redis; from now on they reach another one. */
export async function moveRedis(
  schedule: Schedule,
  to: number,
  moves: (n: number) => boolean,
): Promise<void> {
  const { network, processes } = schedule;
  schedule.mainRedis = to;
  for (const [n, process] of processes.entries()) {
    if (!moves(n)) continue;
    schedule.redisOf[n] = to;
    for (const link of [...network.links])
      if (link.owner === process.name && link.place.store === 'redis') await network.cut(link);
  }
}

/**
 * Nothing that was on its way to the old primary arrives at the new one.
 * @param before runs when no client is connected any more
 */
async function promote(schedule: Schedule, before = async () => {}): Promise<void> {
  const { network, servers } = schedule;
  const links = () => network.links.filter(({ place }) => place.store === 'postgres');
  for (const link of links()) {
    await network.cut(link);
    link.requests.length = 0;
  }
  await before();
  for (let left = links(); left.length > 0; left = links()) {
    // Those that wait for another one are answered when it is closed.
    for (const link of left)
      if (link.waiting === null) await network.close(link);
      else if (servers.postgres.isReplicating(link)) await servers.postgres.cancel(link);
    if (links().length === left.length) await servers.postgres.breakCircle();
    await servers.postgres.settle();
  }
  if (servers.standby === null) await servers.sql.query('SELECT explore.promote()');
  else await servers.standby.promote();
}
