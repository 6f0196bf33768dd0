/**
 * What a lock did in one trial, computed from the events of its clients. Pure.
 *
 * A client is a holder while it acts as one: from its grant to its last write, except while it wrote nothing for some time
 * (it was paused). Two holders at once are two clients that both act. A write is late if a client that was granted the lock
 * later has written before it.
 */
import type { HolderEvent } from '../../../lab/clients/protocol.ts';
import { overlapsOf } from '../../../lab/overlaps.ts';

export const CLIENTS = ['A', 'B', 'C'] as const;
export type Client = (typeof CLIENTS)[number];
export type LabEvent = HolderEvent & { readonly client: Client };

/** From and to, in ms from the first request. */
export type Span = readonly [fromMs: number, toMs: number];

export type LockTrial = Readonly<ReturnType<typeof judgeLock>>;

/** After this long without a write, a holder is absent. */
const ABSENT_MS = 150;

interface Claim {
  readonly client: Client;
  readonly grantedMs: number;
  readonly token: number | null;
  readonly writes: number[];
  lostMs: number | null;
}

/**
 * @param events of all clients, in any order
 * @param band when the fault struck and was healed, in ns
 * @param endNs when the trial ended
 */
export function judgeLock(events: readonly LabEvent[], band: readonly [number, number], endNs: number) {
  const sorted = [...events].sort((a, b) => a.ns - b.ns);
  const zeroNs = sorted[0]?.ns ?? band[0];
  const ms = (ns: number): number => Math.round((ns - zeroNs) / 1e5) / 10;
  const claims: Claim[] = [];
  const asked = new Map<Client, number>();
  for (const event of sorted) {
    const claim = claims.findLast(({ client }) => client === event.client);
    if (event.kind === 'asked') asked.set(event.client, ms(event.ns));
    if (event.kind === 'granted') {
      const { client, fencingToken: token } = event;
      claims.push({ client, grantedMs: ms(event.ns), token, writes: [], lostMs: null });
    }
    if (event.kind === 'wrote') claim?.writes.push(ms(event.ns));
    if (event.kind === 'lost' && claim !== undefined) claim.lostMs ??= ms(event.ns);
  }
  const endMs = ms(endNs);
  const spans = claims.map(spansOf);
  const twoHoldersMs = overlap(spans);
  const { lateWrites, fencedWrites, signalled } = lateWritesOf(claims);
  const isGranted = (name: Client) => claims.some(({ client }) => client === name);
  const refusal = sorted.find((event) => event.client === 'A' && event.kind === 'refused');
  const isServed = isGranted('B') && isGranted('C') && (isGranted('A') || refusal !== undefined);
  const isFenced = claims.every(({ token }) => token !== null) && fencedWrites === 0;
  const late = isFenced ? 'fenced' : 'two holders';
  return {
    word: lateWrites > 0 ? late : isServed ? 'one holder' : 'stuck',
    ...{ twoHoldersMs, signalled, lateWrites, fencedWrites },
    /** The longest time in which a client waited and none acted as the holder; to the end if a client was not served. */
    idleMs: idle(spans.flat(), asked, isServed ? null : endMs),
    /** Why the first client was never granted the lock; null: it was. */
    refused: isGranted('A') || refusal?.kind !== 'refused' ? null : refusal.reason,
    /** The clients, as a picture shows them. */
    lanes: CLIENTS.map((client) => ({
      client,
      asked: asked.get(client) ?? null,
      held: spans.filter((_, n) => claims[n]!.client === client).flat(),
      lost: claims.find((claim) => claim.client === client && claim.lostMs !== null)?.lostMs ?? null,
    })),
    band: [ms(band[0]), ms(band[1])] satisfies Span,
    endMs,
  } as const;
}

function spansOf({ grantedMs, writes }: Claim): Span[] {
  const spans: [number, number][] = [[grantedMs, grantedMs]];
  for (const at of writes) {
    const last = spans.at(-1)!;
    if (at - last[1] > ABSENT_MS) spans.push([at, at]);
    else last[1] = at;
  }
  return spans;
}

function overlap(spans: readonly (readonly Span[])[]): number {
  const held = spans.flatMap((own) => own.map(([from, to]) => ({ from, to })));
  const both = [...overlapsOf(held)].map(({ from, to }) => to - from);
  return Math.round(both.reduce((sum, ms) => sum + ms, 0));
}

/**
 * Counts late writes that a counter accepts without a fence, and with it. `signalled`: when the lock signalled its loss to a holder,
 * before the first late write, after it, or never; null: none was lost.
 */
function lateWritesOf(claims: readonly Claim[]) {
  const writes = claims
    .flatMap((claim, n) => claim.writes.map((at) => ({ claim, n, at })))
    .sort((a, b) => a.at - b.at);
  let highest = Number.NEGATIVE_INFINITY;
  let lateWrites = 0;
  let fencedWrites = 0;
  const seen = new Set<'late' | 'never'>();
  for (const { claim, n, at } of writes) {
    const isLate = claims.some(({ writes: [first] }, m) => m > n && first !== undefined && first < at);
    const passes = claim.token === null || claim.token >= highest;
    highest = Math.max(highest, claim.token ?? highest);
    if (!isLate) continue;
    lateWrites++;
    if (passes) fencedWrites++;
    seen.add(claim.lostMs === null ? 'never' : 'late');
  }
  const isSignalled = claims.some((claim, n) => n < claims.length - 1 && claim.lostMs !== null);
  const unsignalled = (['never', 'late'] as const).find((one) => seen.has(one));
  const signalled = unsignalled ?? (isSignalled ? ('in time' as const) : null);
  return { lateWrites, fencedWrites, signalled };
}

/** @param stuckMs the end, if a client still waited then */
function idle(spans: readonly Span[], asked: ReadonlyMap<Client, number>, stuckMs: number | null): number {
  const firstMs = Math.min(...asked.values());
  let [freeMs, longest] = [firstMs, 0];
  const sorted = [...spans].sort(([a], [b]) => a - b);
  for (const [from, to] of [...sorted, ...(stuckMs === null ? [] : [[stuckMs, stuckMs] as const])]) {
    longest = Math.max(longest, from - freeMs);
    freeMs = Math.max(freeMs, to);
  }
  return Math.round(longest);
}
