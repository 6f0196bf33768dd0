/** Plays one schedule from its plan, and judges it. */
import { audit } from '../audit/audit.ts';
import { isActive, unitsOf } from '../audit/check.ts';
import { linearityOf } from '../audit/consistency.ts';
import { readNow, unpublishedOf } from '../audit/reader.ts';
import type { Choose } from './choose.ts';
import { CLAIM_MS, inject, moveRedis } from './inject.ts';
import { type Plan, Schedule } from './schedule.ts';
import type { ExploreServers } from './servers.ts';
import { virtual } from './virtual.ts';
import { type Action, PRICE_CENTS } from './workload.ts';

/** Events that are chosen; later ones happen in order. */
export const CHOSEN_STEPS = 400;
/** Within this time a process connects again. */
const RECONNECT_MS = 2_500;
/** Longer than a process believes that a sale is sold out. */
const LATCHED_MS = 500;
const ROUNDS = 8;
const LAST_TRIES = 6;

export interface Played {
  readonly findings: readonly string[];
  readonly trace: readonly string[];
  readonly deviations: ReadonlyMap<number, string>;
  readonly held: ReadonlySet<string>;
  /** With `isRecorded`. */
  readonly alternatives: Schedule['alternatives'];
  readonly steps: number;
}

export async function play(plan: Plan, servers: ExploreServers, choose: Choose): Promise<Played> {
  virtual.reset(plan.seed);
  await servers.reset();
  const schedule = new Schedule(plan, servers);
  try {
    await begin(schedule);
    await explore(schedule, choose);
    await heal(schedule);
    await settle(schedule);
    await sellTheRest(schedule);
    await judge(schedule);
  } finally {
    await end(schedule);
  }
  const { findings, trace, deviations, held, alternatives, step } = schedule;
  return { findings: [...findings], trace, deviations, held, alternatives, steps: step };
}

async function begin(schedule: Schedule): Promise<void> {
  const { workload } = schedule.plan;
  for (let n = 0; n < workload.processes; n++) await schedule.start(n);
  await schedule.drain();
  const [first] = schedule.processes;
  const { stock, maxPerOrder } = workload;
  const sale = {
    name: 'explored',
    stock,
    priceCents: PRICE_CENTS,
    startsAt: null,
    endsAt: null,
    maxPerOrder,
  };
  await schedule.finish(first!, async () => {
    const { sales, strategy } = first!.parts!;
    const made = await sales.create(sale);
    schedule.clients.saleId = made.id;
    await strategy.load?.(made);
  });
  await schedule.elapse(0);
  schedule.note('the sale is open');
}

async function explore(schedule: Schedule, choose: Choose): Promise<void> {
  const begun = schedule.step;
  const faults = [...schedule.plan.faults];
  const endings: { readonly step: number; readonly run: () => Promise<void> }[] = [];
  while (schedule.step - begun < CHOSEN_STEPS) {
    const now = schedule.step - begun;
    const over = endings.findIndex(({ step }) => step <= now);
    if (over >= 0) await endings.splice(over, 1)[0]!.run();
    else if (faults[0] !== undefined && faults[0].step <= now) {
      const fault = faults.shift()!;
      const ending = await inject(schedule, fault);
      if (ending !== null) endings.push({ step: now + fault.lasts, run: ending });
    } else {
      if (schedule.isAsked && schedule.isQuiet && endings.length === 0) break;
      if (!(await schedule.take(choose))) break;
    }
  }
  for (const { run } of endings) await run();
}

/** Ends what went wrong, and what is in progress. */
async function heal(schedule: Schedule): Promise<void> {
  const { network, processes } = schedule;
  schedule.note('nothing more goes wrong');
  for (const process of processes) if (process.state === 'frozen') process.state = 'up';
  for (const link of [...network.links]) if (link.isSilent) await network.cut(link);
  if (new Set(schedule.redisOf).size > 1) await moveRedis(schedule, schedule.mainRedis, () => true);
  for (const [n, process] of processes.entries()) if (process.state === 'dead') await schedule.start(n);
  await schedule.drain();
  for (let n = 0; n < 2; n++) await schedule.elapse(RECONNECT_MS);
}

/** Lets the background work settle what is left between the stores: of each process in turn, until nothing is left. */
async function settle(schedule: Schedule): Promise<void> {
  for (let round = 0; round < ROUNDS; round++) {
    await schedule.elapse(CLAIM_MS);
    const up = schedule.processes.filter(({ state }) => state === 'up');
    const process = up[round % up.length]!;
    // A sale that looks the same in two passes is compared.
    for (const name of ['reservation-reaper', 'refunds', 'mirror-outbox', 'reservation-reaper']) {
      const pass = process.parts!.passes.find((one) => one.name === name);
      if (pass === undefined) continue;
      await schedule.finish(process, () => pass.run(() => false));
    }
    await schedule.elapse(LATCHED_MS);
    if (await isSettled(schedule)) return;
  }
}

async function isSettled({ servers, clients, mainRedis, usesRedis }: Schedule): Promise<boolean> {
  if (!usesRedis) return true;
  if ((await unpublishedOf(servers.sql, clients.saleId)) > 0) return false;
  const redis = await servers.readRedis(mainRedis);
  return (await redis.zcard(`stampede:{sale:${clients.saleId}}:reservations`)) === 0;
}

/** New customers buy until the sale is sold out: no unit is stranded, and none is sold twice. */
async function sellTheRest(schedule: Schedule): Promise<void> {
  const { clients } = schedule;
  const process = schedule.processes.find(({ state }) => state === 'up')!;
  for (let n = 1; n <= 20; n++) {
    const user = `last-${n}`;
    for (let tries = 1; ; tries++) {
      const at = clients.history.length;
      await schedule.finish(process, () =>
        clients.send({ kind: 'buy', user, units: 1, at: 0 }, process.parts!),
      );
      const { outcome } = clients.history[at]!;
      if (outcome === 'sold-out') return;
      if (outcome === 'accepted' || outcome === 'replayed') break;
      if (tries === LAST_TRIES)
        return schedule.found(`a customer is answered ${outcome} although nothing goes wrong`);
      await schedule.elapse(CLAIM_MS);
    }
  }
}

/** Compares what clients were answered with the stores; what the reaper finds by comparing them has its time. */
async function judge(schedule: Schedule): Promise<void> {
  const { clients, plan } = schedule;
  await schedule.elapse(0);
  // An order that was answered ahead of its commit may be committed after what the standby has.
  if (schedule.hasLostRedis || schedule.promotedUs > 0) clients.forgetAhead();
  if (plan.workload.scripts.flat().some(isRefund)) clients.forgetPayments();
  clients.forgetBetween(schedule.keptUntilUs, schedule.promotedUs);
  if ((await wrongs(schedule)).length === 0) return;
  await settle(schedule);
  for (const wrong of await wrongs(schedule)) schedule.found(wrong);
}

async function wrongs(schedule: Schedule): Promise<readonly string[]> {
  const { servers, clients, plan } = schedule;
  const redis = schedule.usesRedis ? await servers.readRedis(schedule.mainRedis) : null;
  const stores = await readNow(servers.sql, redis, clients.saleId);
  if ('unreadable' in stores.postgres) return [stores.postgres.unreadable];
  const { orders, sale } = stores.postgres;
  clients.addClosed(orders);
  const report = audit(clients.history, stores);
  const found = report.verdict === 'pass' ? [] : [...report.findings];
  const active = unitsOf(orders.filter(isActive));
  if (active !== sale.stock) found.push(`${active} of ${sale.stock} units are sold at the end`);
  const isOnlyBought = orders.every(({ status }) => status !== 'expired' && status !== 'refund-due');
  const isRefunded = plan.workload.scripts.flat().some(isRefund);
  if (!isOnlyBought || isRefunded || schedule.promotedUs > 0) return found;
  const { explains, step } = linearityOf(plan.workload.stock, clients.history, orders);
  return explains === 'not all'
    ? [...found, `no order of the requests explains ${JSON.stringify(step)}`]
    : found;
}

const isRefund = ({ kind }: Action): boolean => kind === 'refund' || kind === 'refund-sale';

/** Leaves nothing to the next schedule. */
async function end(schedule: Schedule): Promise<void> {
  virtual.timers.clear();
  const { network, servers } = schedule;
  for (const link of [...network.links]) network.left(link);
  for (;;) {
    const link = network.links.find(({ waiting }) => waiting === null);
    if (link === undefined) break;
    await network.close(link);
    await servers.postgres.settle();
  }
}
