/** Plays one world from its plan, and judges it. */

import { isOvertaken } from '../audit/answers.ts';
import { audit } from '../audit/audit.ts';
import { isActive, type OrderRow, unitsOf } from '../audit/check.ts';
import { linearityOf } from '../audit/consistency.ts';
import { readNow, type StoresNow } from '../audit/reader.ts';
import type { AttemptOutcome } from '../history.ts';
import { groupBy } from '../kit/group-by.ts';
import type { Choose, ChooseOf } from './choose.ts';
import { CLAIM_MS, inject, moveRedis } from './inject.ts';
import { setOpening, setTerms, twinsOf } from './operations.ts';
import type { ExploredProcess } from './process.ts';
import { type Plan, type SalePlan, Schedule } from './schedule.ts';
import type { AllServers } from './servers.ts';
import { virtual } from './virtual.ts';
import type { Action } from './workload.ts';

/** Events of a sale that are chosen; later ones happen in order. */
export const CHOSEN_STEPS = 300;
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
  /** Kinds of what went wrong. */
  readonly faults: ReadonlySet<string>;
  /** With `isRecorded`. */
  readonly alternatives: Schedule['alternatives'];
}

export async function play(plan: Plan, all: AllServers, choose: ChooseOf): Promise<Played> {
  const servers = all.of(plan);
  virtual.reset(plan.seed);
  await servers.reset();
  const schedule = new Schedule(plan, servers);
  try {
    await begin(schedule);
    for (const sale of plan.sales) await sell(schedule, sale, choose(sale.n));
    schedule.close();
    await heal(schedule);
    await settle(schedule);
    if (plan.hasExtras) await schedule.invariants.compareWaiting();
    await sellTheRest(schedule);
    await judge(schedule);
  } finally {
    await end(schedule);
  }
  const { findings, trace, deviations, faults, alternatives } = schedule;
  return { findings: [...findings], trace, deviations, faults, alternatives };
}

async function begin(schedule: Schedule): Promise<void> {
  const { plan, servers } = schedule;
  const { processes, sales } = plan;
  await servers.addSales([...sales.map(({ n, workload }) => ({ id: n, ...workload })), ...twinsOf(plan)]);
  for (const sale of sales) await setTerms(servers, sale);
  for (let n = 0; n < processes; n++) await schedule.start(n);
  await schedule.drain();
}

async function sell(schedule: Schedule, sale: SalePlan, choose: Choose): Promise<void> {
  schedule.sell(sale);
  await setOpening(schedule.servers, sale);
  const process = schedule.processes.find(({ state }) => state === 'up');
  if (process !== undefined)
    // A load that fails is made up for by the first attempt.
    await schedule.finish(process, async () => process.parts!.strategy.load?.({ id: sale.n }));
  schedule.note(`sale ${sale.n} is open`);
  await explore(schedule, sale, choose);
  await calm(schedule);
  if (schedule.clients.excuses.isUnnoticed) await notice(schedule);
  if (sale.faults.length > 0) {
    if (!schedule.isConnected) await schedule.elapse(RECONNECT_MS);
    await probe(schedule, sale);
  }
  // No customer buys it any more: it is not confirmed to be sold out in the next sale.
  for (const { parts } of schedule.processes) parts?.strategy.knownSoldOut?.forget(sale.n);
  await schedule.elapse(0);
}

/** Every second each process looks whether a standby of Postgres was promoted. */
async function notice(schedule: Schedule): Promise<void> {
  for (const process of schedule.processes)
    if (process.state === 'up')
      await schedule.finish(process, async () => process.parts!.strategy.mirror?.checkEpochs());
  schedule.clients.excuses.noticed();
}

/**
 * Before the background work has time to repair anything: more customers than there are units, and then every customer with an order again.
 * No unit is sold twice, and no customer with an order is refused.
 */
async function probe(schedule: Schedule, { n, workload }: SalePlan): Promise<void> {
  const { clients } = schedule;
  const up = schedule.processes.filter(({ state }) => state === 'up');
  if (up.length === 0) return;
  const users = Array.from({ length: workload.stock + 1 }, (_, i) => `late-${n}-${i + 1}`);
  const buy = (all: readonly string[], at: (n: number) => ExploredProcess) =>
    schedule.finish(at(0), () =>
      Promise.all(
        all.map((user, i) => clients.send({ kind: 'buy', user, units: 1, at: 0 }, n, at(i).parts!)),
      ),
    );
  await buy(users, (i) => up[i % up.length]!);
  await buy(clients.holders(n), (i) => up[(n + i) % up.length]!);
}

async function explore(schedule: Schedule, sale: SalePlan, choose: Choose): Promise<void> {
  const begun = schedule.step;
  const faults = [...sale.faults];
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
async function calm(schedule: Schedule): Promise<void> {
  const { network, processes } = schedule;
  schedule.isStandbyAway = false;
  for (const process of processes) if (process.state === 'frozen') process.state = 'up';
  for (const link of [...network.links]) if (link.isSilent) await network.cut(link);
  if (new Set(schedule.redisOf).size > 1) {
    await schedule.loseRedis(() => moveRedis(schedule, schedule.mainRedis, () => true), true);
  }
  for (const [n, process] of processes.entries()) if (process.state === 'dead') await schedule.start(n);
  await schedule.drain();
}

async function heal(schedule: Schedule): Promise<void> {
  schedule.note('nothing more goes wrong');
  await calm(schedule);
  for (let n = 0; n < 2; n++) await schedule.elapse(RECONNECT_MS);
}

/** Lets the background work settle what is left between the stores: of each process in turn, until nothing is left. */
async function settle(schedule: Schedule): Promise<void> {
  for (let round = 0; round < ROUNDS; round++) {
    await schedule.elapse(CLAIM_MS);
    const up = schedule.processes.filter(({ state }) => state === 'up');
    const process = up[round % up.length]!;
    // A sale that looks the same in two passes, after those that changed it, is compared.
    const names = ['reservation-reaper', 'refunds', 'mirror-outbox', ...twice('reservation-reaper')];
    for (const name of schedule.plan.hasExtras ? [...names, 'tasks', 'waitlist'] : names) {
      const pass = process.parts!.passes.find((one) => one.name === name);
      if (pass === undefined) continue;
      await schedule.finish(process, () => pass.run(() => false));
    }
    await schedule.elapse(LATCHED_MS);
    if (await isSettled(schedule)) return;
  }
}

const twice = <T>(one: T): [T, T] => [one, one];

async function isSettled({ servers, mainRedis, usesRedis, plan }: Schedule): Promise<boolean> {
  if (plan.hasExtras && (await servers.sql.query(OPEN_TASKS)).rowCount !== 0) return false;
  if (!usesRedis) return true;
  const { rowCount } = await servers.sql.query('SELECT FROM mirror_outbox LIMIT 1');
  return rowCount === 0 && (await servers.reservations(mainRedis)).length === 0;
}

const OPEN_TASKS = `SELECT FROM tasks WHERE kind <> 'event' AND state <> 'done' LIMIT 1`;

/** New customers at the end, at most: more than the sales have units. */
const MAX_CUSTOMERS = 100;

/** New customers buy until the sales are sold out: no unit is stranded, and none is sold twice. */
async function sellTheRest(schedule: Schedule): Promise<void> {
  const { clients, plan } = schedule;
  const process = schedule.processes.find(({ state }) => state === 'up')!;
  /** How many come at once, of each sale that is not sold out. */
  const sold = plan.sales.map(({ n, workload }) => ({ id: n, stock: workload.stock }));
  const coming = new Map([...sold, ...twinsOf(plan)].map(({ id, stock }) => [id, stock + 1]));
  for (let customers = 0, tries = 1; coming.size > 0; ) {
    const from = clients.history.length;
    const buy = ([sale, count]: readonly [number, number]) =>
      Array.from({ length: count }, () => {
        const user = `last-${++customers}`;
        return clients.send({ kind: 'buy', user, units: 1, at: 0 }, sale, process.parts!);
      });
    await schedule.finish(process, () => Promise.all([...coming].flatMap(buy)));
    const outcomes = groupBy(clients.history.slice(from), ({ saleId }) => saleId);
    let isWaiting = false;
    for (const [sale, all] of outcomes) {
      const other = all.find(({ outcome }) => !SETTLED.has(outcome));
      if (other !== undefined && tries === LAST_TRIES)
        return schedule.found(`a customer is answered ${other.outcome} although nothing goes wrong`);
      if (other !== undefined) isWaiting = true;
      else if (all.some(({ outcome }) => outcome === 'sold-out') || customers > MAX_CUSTOMERS)
        coming.delete(sale);
    }
    for (const sale of coming.keys()) coming.set(sale, 1);
    if (!isWaiting) continue;
    tries++;
    await schedule.elapse(CLAIM_MS);
  }
}

const SETTLED: ReadonlySet<AttemptOutcome | null> = new Set(['accepted', 'replayed', 'sold-out']);

/** Compares what clients were answered with the stores; what the reaper finds by comparing them has its time. */
async function judge(schedule: Schedule): Promise<void> {
  const { clients, plan } = schedule;
  await schedule.elapse(0);
  await schedule.noteCommitted();
  clients.excuses.apply(await revivals(schedule));
  if (plan.hasExtras) await schedule.invariants.compareLast(schedule.promised, schedule.receiver);
  if ((await wrongs(schedule)).length === 0) return;
  await settle(schedule);
  for (const wrong of await wrongs(schedule)) schedule.found(wrong);
}

/** Late payments that took the units of their order again: ids. */
async function revivals({ servers }: Schedule): Promise<ReadonlySet<string>> {
  const revived = `SELECT id FROM payment_notifications WHERE result = 'revived'`;
  return new Set((await servers.sql.query<{ id: string }>(revived)).rows.map(({ id }) => id));
}

async function wrongs(schedule: Schedule): Promise<readonly string[]> {
  const { servers, clients, plan } = schedule;
  const redis = schedule.usesRedis ? await servers.readRedis(schedule.mainRedis) : null;
  const stores = await readNow(servers.sql, redis, schedule.sales);
  const { orders: all } = [...stores.values()][0]!.postgres;
  clients.addClosed(all, await servers.closings());
  for (const { n, workload } of plan.sales)
    if (workload.scripts.flat().some(isRefund)) clients.addRefunds(n, all);
  const report = audit(clients.history, ...stores.values());
  const found = report.verdict === 'pass' ? [] : [...report.findings];
  for (const id of schedule.sales) {
    const { sale } = stores.get(id)!.postgres;
    const active = unitsOf(all.filter((order) => order.saleId === id && isActive(order)));
    if (active !== sale.stock) found.push(`sale ${id}: ${active} of ${sale.stock} units are sold at the end`);
  }
  if (!clients.excuses.hasLostPostgres) found.push(...undone(schedule, stores));
  for (const { n, workload } of plan.sales) {
    const orders = all.filter(({ saleId }) => saleId === n);
    if (clients.excuses.hasLostPostgres || workload.scripts.flat().some(isUnexplained)) continue;
    const { payments } = stores.get(n)!.postgres;
    const revived = new Set(payments.filter(({ result }) => result === 'revived').map((one) => one.orderId));
    // It expired, at a time that no request shows.
    const hasExpired = ({ id, status }: OrderRow) =>
      status === 'expired' || status === 'refund-due' || revived.has(id);
    if (orders.some(hasExpired)) continue;
    const history = clients.history.filter(({ saleId }) => saleId === n);
    const closings = groupBy(
      history.filter(({ op }) => op === 'cancel' || op === 'expire'),
      ({ userId }) => userId,
    );
    if (history.some((one) => isOvertaken(one, closings.get(one.userId) ?? []))) continue;
    const { explains, step } = linearityOf(workload.stock, history, orders);
    if (explains === 'not all') found.push(`no order of the requests explains ${JSON.stringify(step)}`);
  }
  return found;
}

/** What an operator's request was acknowledged for, and is not so at the end. */
function* undone(
  { plan, clients, answered }: Schedule,
  stores: ReadonlyMap<number, StoresNow>,
): Generator<string> {
  for (const { n, workload } of plan.sales) {
    const { sale, orders, payments } = stores.get(n)!.postgres;
    const restocks = clients.history.filter((one) => one.op === 'restock' && one.saleId === n);
    let stocks = new Set([workload.stock]);
    for (const { result, units } of restocks) {
      const after = result === 'fail' ? [] : [...stocks].map((stock) => stock + units!);
      stocks = new Set(result === 'ok' ? after : [...stocks, ...after]);
    }
    if (!stocks.has(sale.stock) && !workload.scripts.flat().some(keepsUnits))
      yield `sale ${n} has ${sale.stock} units, and was to have ${[...stocks].join(' or ')}`;
    const revived = new Set(payments.filter(({ result }) => result === 'revived').map((one) => one.orderId));
    const refundedUs = answered.refunds.get(n) ?? 0;
    for (const order of orders.filter(({ saleId }) => saleId === n).filter(isActive))
      if (clients.placedUntilUs(order.id) < refundedUs && !revived.has(order.id))
        yield `order ${order.id} is active after a refund of its sale`;
  }
}

/** The checker of one order of requests does not know these. */
const isUnexplained = (action: Action): boolean => isRefund(action) || action.kind === 'transfer';
/** Of what a refund does not return, the stock is smaller. */
const keepsUnits = (action: Action): boolean => action.kind === 'refund' && !action.returnUnits;
const isRefund = ({ kind }: Action): boolean => kind === 'refund' || kind === 'refund-sale';

/** Leaves nothing to the next schedule. */
async function end(schedule: Schedule): Promise<void> {
  virtual.timers.clear();
  const { network, servers } = schedule;
  for (const link of [...network.links]) network.left(link);
  for (;;) {
    if (servers.standby?.isAwaited()) await servers.standby.confirm();
    if (network.links.length === 0) break;
    const link = network.links.find(({ waiting }) => waiting === null);
    await (link === undefined ? servers.postgres.breakCircle() : network.close(link));
    await servers.postgres.settle();
  }
}
