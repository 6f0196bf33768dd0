/**
 * One process of waiters. It opens its lock, reports `ready`, and on `go` every waiter acquires, holds and releases in a loop
 * until the end. Then waiters are cancelled, and it reports what happened when.
 */
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';
import { openLock } from './open.ts';
import {
  type BenchLock,
  type Cycle,
  type FromWorker,
  type Go,
  nowNs,
  type Order,
  type Sent,
  type ToWorker,
  untilNs,
  type Waiting,
} from './protocol.ts';
import { countRequests } from './requests.ts';

/** How much longer than the run a waiter would wait: longer than the lateness of any timer. */
const SPARE_MS = 5_000;
/** How long cancelled waiters, and then the lock's close, may take. */
const FAREWELL_MS = 3_000;
/** After a failed acquisition, so that a lock that refuses at once is not called in a tight loop. */
const REFUSED_PAUSE_MS = 5;

const requests = countRequests();

/** The log of this process's waiters. */
class Log {
  readonly cycles: Cycle[] = [];
  readonly refusals: Record<string, number> = {};
  /** When each waiter asked for a grant that it does not have. */
  readonly #asked = new Map<number, number>();

  asks(waiter: number, askedNs: number): void {
    this.#asked.set(waiter, askedNs);
  }

  granted(cycle: Cycle): void {
    this.#asked.delete(cycle.waiter);
    this.cycles.push(cycle);
  }

  refused(reason: string): void {
    this.refusals[reason] = (this.refusals[reason] ?? 0) + 1;
  }

  waiting(): Waiting[] {
    return [...this.#asked].map(([waiter, askedNs]) => ({ waiter, askedNs }));
  }
}

async function contend(
  lock: BenchLock,
  waiter: number,
  { resource, yieldsWhileHolding }: Order,
  { endNs }: Go,
  log: Log,
  signal: AbortSignal,
): Promise<void> {
  while (nowNs() < endNs) {
    const askedNs = nowNs();
    log.asks(waiter, askedNs);
    const waitMs = Math.ceil((endNs - askedNs) / 1e6) + SPARE_MS;
    const asked = await lock.acquire(resource, { waitMs, signal });
    const grantedNs = nowNs();
    if (asked.kind === 'refused') {
      if (signal.aborted) return;
      log.refused(asked.reason);
      await sleep(REFUSED_PAUSE_MS);
      continue;
    }
    if (yieldsWhileHolding) await turn();
    const releasedNs = nowNs();
    const released = asked.release();
    log.granted({ waiter, askedNs, grantedNs, releasedNs });
    await released;
  }
}

/** What was sent while it was measured; the moments are those of the reads. */
async function countSent({ startNs, endNs }: Go): Promise<Sent> {
  await untilNs(startNs);
  const before = { ns: nowNs(), requests: requests() };
  await untilNs(endNs);
  return { fromNs: before.ns, toNs: nowNs(), requests: requests() - before.requests };
}

async function run(lock: BenchLock, order: Order, go: Go): Promise<void> {
  const log = new Log();
  await untilNs(go.beginNs);
  const ends = order.waiters.map(() => new AbortController());
  const contending = order.waiters.map((waiter, index) =>
    contend(lock, waiter, order, go, log, ends[index]!.signal),
  );
  const sent = await countSent(go);
  for (const end of ends) end.abort();
  await Promise.race([Promise.all(contending), sleep(FAREWELL_MS)]);
  const { cycles, refusals } = log;
  await send({ kind: 'done', report: { cycles, refusals, sent, waiting: log.waiting() } });
}

function send(message: FromWorker): Promise<void> {
  return new Promise((resolve) => process.send?.(message, () => resolve()));
}

let lock: BenchLock | undefined;
let order: Order | undefined;

async function obey(message: ToWorker): Promise<void> {
  if (message.kind === 'order') {
    order = message;
    lock = await openLock(message.lock, message.urls);
    return send({ kind: 'ready' });
  }
  if (lock === undefined || order === undefined) throw new Error('go came before there was a lock');
  await run(lock, order, message);
  await Promise.race([lock.close(), sleep(FAREWELL_MS)]);
  process.exit(0);
}

process.on('message', (message: ToWorker) => {
  obey(message).catch(async (error: unknown) => {
    await send({ kind: 'failed', reason: error instanceof Error ? error.message : String(error) });
    process.exit(1);
  });
});
// The bench is gone.
process.on('disconnect', () => process.exit(1));
