/**
 * Schedules for locks, generated from a seed, and the detection of overlapping leases.
 *
 * A schedule is a list of timed steps: contenders claim a lock while faults hit clients. A client is one lock with its own
 * connections and one or two contenders. A seed always generates the same steps; their effect depends on real processes and
 * servers and varies a little.
 *
 * A holder considers its lease valid when it reads `signal.aborted` as false before it starts the release. A signal never
 * resets, so a lease that was valid at two checks was valid in between. Two leases overlapped if and only if their spans from
 * first to last valid check overlap: a check of one then lies between two checks of the other. All processes of a machine
 * read the same monotonic clock.
 */
import type { Claim, LeaseRecord } from '../../lab/clients/protocol.ts';
import { seededRandom } from '../../lab/kit/random.ts';
import { overlapsOf } from '../../lab/overlaps.ts';

/** A claim of one of the clients. */
export interface ClaimStep extends Claim {
  readonly does: 'claim';
  readonly client: number;
}

/**
 * crash: the client's process dies, and its connections end. vanish: the machine dies, so its connections stay open. pause: the
 * process is stopped for a while, longer or shorter than its lease. stall: bytes are held for a while. black-hole,
 * lose-replies, lose-requests: bytes are swallowed, and then the affected connections are cut. reconnect: all connections are
 * cut.
 */
const FAULTS = [
  'crash',
  'vanish',
  'pause',
  'pause',
  'stall',
  'stall',
  'black-hole',
  'lose-replies',
  'lose-requests',
  'reconnect',
  'reconnect',
] as const;
const INSTANT: readonly string[] = ['crash', 'vanish', 'reconnect'];

/** A fault of one client. */
export interface FaultStep {
  readonly does: (typeof FAULTS)[number];
  readonly client: number;
  readonly atMs: number;
  /** Zero for an instant fault. */
  readonly forMs: number;
}

export interface Schedule {
  readonly seed: number;
  readonly clients: number;
  readonly ttlMs: number;
  /** The end: waits are aborted and leases released. */
  readonly endMs: number;
  readonly claims: readonly ClaimStep[];
  readonly faults: readonly FaultStep[];
}

/** The time between two instants. */
export interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

/** A lease of a client, and the cuts of the client's connections. */
export interface ClientLease {
  readonly client: number;
  readonly lease: LeaseRecord;
  readonly cuts: readonly Span[];
}

/** Generates the schedule of a seed. @param leaseMs the shortest and the longest lease, milliseconds */
export function makeSchedule(seed: number, leaseMs: readonly [number, number]): Schedule {
  const next = seededRandom(seed);
  const between = (least: number, most: number) => Math.floor(least + next() * (most - least + 1));
  const clients = between(2, between(2, 4));
  const ttlMs = between(...leaseMs);
  const claims: ClaimStep[] = [];
  for (let client = 0; client < clients; client++) {
    for (const contender of next() < 0.3 ? (['a', 'b'] as const) : (['a'] as const)) {
      let atMs = between(0, 80);
      for (let left = between(2, 3); left > 0; left--) {
        const waitMs = next() < 0.15 ? 0 : between(ttlMs / 2, 3 * ttlMs);
        const holdMs = next() < 0.5 ? between(2, ttlMs / 2) : between(ttlMs / 2, 2 * ttlMs);
        claims.push({ does: 'claim', client, contender, atMs, waitMs, holdMs });
        atMs += between(0, ttlMs);
      }
    }
  }
  const faults: FaultStep[] = [];
  for (let left = between(1, 4); left > 0; left--) {
    const does = FAULTS[between(0, FAULTS.length - 1)]!;
    const anyone = between(0, clients - 1);
    // Faults of one client tend to coincide.
    const client = next() < 0.5 ? (faults.at(-1)?.client ?? anyone) : anyone;
    const forMs = INSTANT.includes(does) ? 0 : between(ttlMs / 4, 2 * ttlMs);
    faults.push({ does, client, atMs: between(10, 2 * ttlMs), forMs });
  }
  return { seed, clients, ttlMs, endMs: 3 * ttlMs, claims, faults };
}

/**
 * All pairs of leases that were valid at once.
 * @param allowance how many checks after a cut of the client's connections may still read the lease as valid
 */
export function findOverlaps(leases: readonly ClientLease[], allowance = 0): string[] {
  const spans = leases
    .map(({ client, lease, cuts }) => ({
      holder: `${client}${lease.contender}`,
      from: lease.firstMs,
      to: lastCheck(lease, cuts, allowance),
    }))
    .filter(({ from, to }) => from < to);
  return [...overlapsOf(spans)].map(
    ({ one, other, from, to }) => `${one.holder} ${other.holder} ${from} +${to - from}`,
  );
}

/** The last valid check, except those that the allowance covers. */
function lastCheck(
  { requestedMs, latestMs, end }: LeaseRecord,
  cuts: readonly Span[],
  allowance: number,
): number {
  const lastMs = latestMs.at(-1) ?? 0;
  if (allowance === 0 || end === 'released') return lastMs;
  for (const { fromMs, toMs } of cuts) {
    const after = latestMs.filter((ms) => ms > toMs).length;
    // More checks mean a newer connection, or a missing signal.
    if (toMs >= requestedMs && after <= allowance) return latestMs.findLast((ms) => ms <= fromMs) ?? 0;
  }
  return lastMs;
}
