/**
 * One process of waiters. It opens its lock, reports `ready`, and on `go` every waiter acquires, holds and releases in a loop
 * until the end. Then waiters are cancelled, and it reports what happened when.
 */
import { setTimeout as sleep, setImmediate as turn } from 'node:timers/promises';
import { Redis } from 'ioredis';
import pg from 'pg';
import { type BenchLock, openLock } from '../../../lab/clients/open-lock.ts';
import { nowNs, untilNs } from '../../../lab/kit/monotonic.ts';
import type { Cycle, FromWorker, Go, Order, ToWorker } from './protocol.ts';

/** How much longer than the run a waiter would wait: longer than the lateness of any timer. */
const spareMs = 5_000;
/** How long cancelled waiters, and then the lock's close, may take. */
const farewellMs = 3_000;
/** After a failed acquisition, so that a lock that refuses at once is not called in a tight loop. */
const refusedPauseMs = 5;

/**
 * Requests that the clients of this process sent. A server's own counters do not tell a command that a client sent from one
 * that a script called, so it is counted where every command of ioredis and every query of pg passes. A command that is
 * queued until there is a connection passes twice: count when all are connected.
 */
let requests = 0;
const counted = <A extends unknown[], R>(send: (...args: A) => R) =>
  function (this: unknown, ...args: A): R {
    requests++;
    return send.apply(this, args);
  };
Redis.prototype.sendCommand = counted(Redis.prototype.sendCommand);
// The overloads of `query` say more than is needed here.
const client = pg.Client.prototype as { query: (...args: unknown[]) => unknown };
client.query = counted(client.query);

const cycles: Cycle[] = [];
const refusals: Record<string, number> = {};
/** When each waiter asked for a grant that it does not have. */
const asking = new Map<number, number>();

async function contend(
  lock: BenchLock,
  waiter: number,
  { resource, yieldsWhileHolding }: Order,
  endNs: number,
  signal: AbortSignal,
): Promise<void> {
  while (nowNs() < endNs) {
    const askedNs = nowNs();
    asking.set(waiter, askedNs);
    const grant = await lock.acquire(resource, Math.ceil((endNs - askedNs) / 1e6) + spareMs, signal);
    const grantedNs = nowNs();
    if (typeof grant === 'string') {
      if (signal.aborted) return;
      refusals[grant] = (refusals[grant] ?? 0) + 1;
      await sleep(refusedPauseMs);
      continue;
    }
    if (yieldsWhileHolding) await turn();
    const releasedNs = nowNs();
    const released = grant.release();
    asking.delete(waiter);
    cycles.push({ waiter, askedNs, grantedNs, releasedNs });
    await released;
  }
}

async function run(lock: BenchLock, order: Order, { beginNs, startNs, endNs }: Go): Promise<void> {
  await untilNs(beginNs);
  // One signal for each waiter: thousands of listeners on one would be slow.
  const ends = order.waiters.map(() => new AbortController());
  const contending = order.waiters.map((waiter, n) => contend(lock, waiter, order, endNs, ends[n]!.signal));
  await untilNs(startNs);
  const before = { ns: nowNs(), requests };
  await untilNs(endNs);
  const sent = { fromNs: before.ns, toNs: nowNs(), requests: requests - before.requests };
  for (const end of ends) end.abort();
  await Promise.race([Promise.all(contending), sleep(farewellMs)]);
  const waiting = [...asking].map(([waiter, askedNs]) => ({ waiter, askedNs }));
  await send({ kind: 'done', report: { cycles, refusals, sent, waiting } });
}

function send(message: FromWorker): Promise<void> {
  return new Promise((resolve) => process.send?.(message, () => resolve()));
}

let opened: { readonly lock: BenchLock; readonly order: Order } | undefined;

async function obey(message: ToWorker): Promise<void> {
  if (message.kind === 'order') {
    opened = { lock: await openLock(message.lock, message.urls), order: message };
    return send({ kind: 'ready' });
  }
  const { lock, order } = opened!;
  await run(lock, order, message);
  await Promise.race([lock.close(), sleep(farewellMs)]);
  process.exit(0);
}

// A rejection ends the process; the bench shows its last lines.
process.on('message', (message: ToWorker) => void obey(message));
// The bench is gone.
process.on('disconnect', () => process.exit(1));
