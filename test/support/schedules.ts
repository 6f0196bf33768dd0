/**
 * Schedules for locks, made from a seed, and the judgement of what happened in one.
 *
 * A schedule is a list of timed steps: contenders claim a lock, and meanwhile something goes wrong with a client, which
 * is one lock with connections of its own and one or two contenders. The same seed makes the same steps; what comes
 * of them is up to real processes and servers, and differs a little each time.
 *
 * A holder believes in its lease at an instant when it reads `signal.aborted` in it, is told false, and has not begun
 * to give the lease back. A signal that has fired stays so: a lease that was valid at two looks was valid in between.
 * Therefore it is proved that two held the lock at once if, and only if, the spans of their leases from the first valid
 * look to the last one overlap; one of their looks lies between two of the other then. All processes of a machine read
 * the same monotonic clock.
 */

/** One claim: wait for the lock so long, hold it so long if it is had, give it back. */
export interface ClaimStep {
  readonly does: 'claim';
  readonly client: number;
  /** A second one shares its client's lock. */
  readonly contender: 'a' | 'b';
  readonly atMs: number;
  readonly waitMs: number;
  readonly holdMs: number;
}

/**
 * crash: the client's process is gone, and its connections end. vanish: the same, but no server hears of it: the machine
 * died. stop: its whole process is stopped for a while, past its lease or short of that, and goes on. stall: bytes are
 * kept back for a while. black-hole, lose-replies, lose-requests: they are swallowed, and then the connections are cut
 * that lost some. reconnect: all its connections are cut.
 */
const TROUBLES = [
  'crash',
  'vanish',
  'stop',
  'stop',
  'stall',
  'stall',
  'black-hole',
  'lose-replies',
  'lose-requests',
  'reconnect',
  'reconnect',
] as const;
const MOMENTARY: readonly string[] = ['crash', 'vanish', 'reconnect'];

/** What goes wrong with one client. */
export interface TroubleStep {
  readonly does: (typeof TROUBLES)[number];
  readonly client: number;
  readonly atMs: number;
  /** Zero for what does not last. */
  readonly forMs: number;
}

export interface Schedule {
  readonly seed: number;
  readonly clients: number;
  readonly ttlMs: number;
  /** Whoever is not done by then is told to end: waiting stops, and what is held is given back. */
  readonly endMs: number;
  readonly claims: readonly ClaimStep[];
  readonly troubles: readonly TroubleStep[];
}

/** What a client's lock is made from; each address leads through a proxy of its own. */
export interface ClientServers {
  readonly lock: string;
  readonly lockTtlMs?: number;
  readonly redisUrl?: string;
  readonly databaseUrl?: string;
  readonly redlockUrls?: readonly string[];
  readonly zookeeperUrl?: string;
}

/** A client's part in a schedule. */
export interface Part {
  readonly resource: string;
  readonly ttlMs: number;
  /** On the machine's monotonic clock. */
  readonly startMs: number;
  readonly claims: readonly ClaimStep[];
}

/** What its holder saw of a lease; instants on the machine's monotonic clock, in milliseconds. */
export interface LeaseSeen {
  readonly contender: 'a' | 'b';
  /** Before it was asked for. */
  readonly askedMs: number;
  /** After the first look that said valid. */
  readonly firstMs: number;
  /** Before each of the latest looks that said valid, the last one last. */
  readonly latestMs: readonly number[];
  /** late: its release was told that it was over by then, or was not answered. */
  readonly end: 'given back' | 'late' | 'lost' | 'crashed';
}

/** What came of a client's claims. */
export interface Played {
  readonly leases: readonly LeaseSeen[];
  readonly contended: number;
  readonly unavailable: number;
}

/** What a worker is told. Each is answered; `play` when the client is done, was told to end, or crashed. */
export type Order = { readonly id: number; readonly client: number } & (
  | { readonly do: 'open'; readonly servers: ClientServers }
  | { readonly do: 'play'; readonly part: Part }
  | { readonly do: 'end' | 'crash' | 'close' }
);
export type Reply = { readonly id: number; readonly value?: Played; readonly error?: string };

/** When something began and when it was done. */
export interface Span {
  readonly fromMs: number;
  readonly toMs: number;
}

/** A lease of a client, and when the client's connections were cut. */
export interface Judged {
  readonly client: number;
  readonly lease: LeaseSeen;
  readonly cuts: readonly Span[];
}

export interface Overlap {
  readonly holders: readonly [string, string];
  readonly fromMs: number;
  readonly forMs: number;
}

/** The same in all processes of the machine. */
export const monotonicMs = (): number => Number(process.hrtime.bigint()) / 1e6;

/** mulberry32. @returns a source of numbers from 0 up to 1 */
function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** The schedule of a seed, for leases of so many milliseconds, from the shortest to the longest. */
export function makeSchedule(seed: number, leaseMs: readonly [number, number]): Schedule {
  const next = random(seed);
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
  const troubles: TroubleStep[] = [];
  for (let left = between(1, 4); left > 0; left--) {
    const does = TROUBLES[between(0, TROUBLES.length - 1)]!;
    const anyone = between(0, clients - 1);
    // One trouble rarely comes alone.
    const client = next() < 0.5 ? (troubles.at(-1)?.client ?? anyone) : anyone;
    const forMs = MOMENTARY.includes(does) ? 0 : between(ttlMs / 4, 2 * ttlMs);
    troubles.push({ does, client, atMs: between(10, 2 * ttlMs), forMs });
  }
  return { seed, clients, ttlMs, endMs: 3 * ttlMs, claims, troubles };
}

/**
 * All pairs of leases that were valid at once.
 * @param allowance so often a holder may look, after its client's connections were cut, and still be told that its
 *   lease is valid
 */
export function findOverlaps(leases: readonly Judged[], allowance = 0): Overlap[] {
  const spans = leases
    .map(({ client, lease, cuts }) => ({
      holder: `${client}${lease.contender}`,
      fromMs: lease.firstMs,
      toMs: lastLook(lease, cuts, allowance),
    }))
    .filter(({ fromMs, toMs }) => fromMs < toMs)
    .sort((one, other) => one.fromMs - other.fromMs);
  return spans.flatMap((one, i) =>
    spans
      .slice(i + 1)
      .filter(({ fromMs }) => fromMs < one.toMs)
      .map(({ holder, fromMs, toMs }) => ({
        holders: [one.holder, holder] as const,
        fromMs,
        forMs: Math.min(one.toMs, toMs) - fromMs,
      })),
  );
}

/** The last valid look that counts: with an allowance, the first few after a cut do not. */
function lastLook({ askedMs, latestMs, end }: LeaseSeen, cuts: readonly Span[], allowance: number): number {
  const lastMs = latestMs.at(-1) ?? 0;
  if (allowance === 0 || end === 'given back') return lastMs;
  for (const { fromMs, toMs } of cuts) {
    const after = latestMs.filter((ms) => ms > toMs).length;
    // More of them, and it is a newer connection, or nobody told the holder.
    if (toMs >= askedMs && after <= allowance) return latestMs.findLast((ms) => ms <= fromMs) ?? 0;
  }
  return lastMs;
}

/** A schedule for people. */
export function print({ seed, ttlMs, claims, troubles }: Schedule): string {
  const lines = [...claims, ...troubles]
    .sort((one, other) => one.atMs - other.atMs)
    .map((step) => {
      const who = `client ${step.client}${step.does === 'claim' ? step.contender : ' '}`;
      const lasting = step.does !== 'claim' && step.forMs > 0 ? ` for ${step.forMs} ms` : '';
      const how = step.does === 'claim' ? `: waits ${step.waitMs} ms, holds ${step.holdMs} ms` : lasting;
      return `${String(step.atMs).padStart(8)} ms  ${who}  ${step.does}${how}`;
    });
  return [`seed ${seed}, TTL ${ttlMs} ms`, ...lines].join('\n');
}
