/**
 * A process that uses a lock in every way, closes it, and prints which of its timers and sockets are left: those that
 * were not there before. Arguments: as for lock-worker.ts, without a count.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { openLock } from './lock-process.ts';

const [name, redisUrl, resource, more = '{}'] = process.argv.slice(2);

/** Timers and sockets, without the pipes to the parent. */
const active = () => process.getActiveResourcesInfo().filter((kind) => !/^(Pipe|TTY)/.test(kind));

const before = active();
const { lock, close } = await openLock(name!, { ...JSON.parse(more), redisUrl: redisUrl! });
const options = { ttlMs: 5_000, waitMs: 0 };
const given = await lock.acquire(`${resource}:given`, options);
if (given.kind !== 'held') throw new Error(given.kind);
await given.lease.release();
const kept = await lock.acquire(`${resource}:kept`, options);
if (kept.kind !== 'held') throw new Error(kept.kind);
const waiting = lock.acquire(`${resource}:kept`, { ttlMs: 5_000, waitMs: 60_000 });
await lock.acquire(`${resource}:kept`, { ...options, waitMs: 60_000, signal: AbortSignal.timeout(50) });
await close();
// What is closed is gone a turn of the loop later.
await sleep(100);
const left = active();
for (const kind of before) if (left.includes(kind)) left.splice(left.indexOf(kind), 1);
const waiter = await Promise.race([waiting.then(({ kind }) => kind), sleep(500, 'waits', { ref: false })]);
process.stdout.write(`${JSON.stringify({ left, waiter })}\n`);
