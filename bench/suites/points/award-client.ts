/** A process of clients that award points, each client one award at a time. Its parent sends how, then one phase after another. */
import { nowNs, untilNs } from '../../../lab/kit/monotonic.ts';
import type { Award } from '../../../src/points/ledger.ts';
import { type Guard, type GuardedLedger, openGuardedLedger } from './guard.ts';

/**
 * - award: every award is a new one
 * - repeat: the awards of `award` again
 * - race: all clients of all processes send the same award, a new one every few milliseconds
 */
export interface Awarding {
  readonly kind: 'award';
  readonly phase: 'award' | 'repeat' | 'race';
  /** The measured time, on the machine's monotonic clock. */
  readonly startNs: number;
  readonly endNs: number;
  /** The numbers of the clients, unique among all processes. */
  readonly clients: readonly number[];
}

export type ToAwardClient = (Guard & { readonly kind: 'guard' }) | Awarding;
export type FromAwardClient =
  | { readonly kind: 'ready' }
  | ({ readonly kind: 'awarded' } & Record<'added' | 'repeated' | 'refused', number>);

/** How long all clients of a race send the same award. */
const raceNs = 3e6;
const lockWaitMs = 10_000;
/** No waiter is notified of a lost lock: a client that waits longer would miss the next awards. */
const raceWaitMs = 5;

let ledger: GuardedLedger;
/** How many awards each client has added, by its number. */
const added = new Map<number, number>();

async function award({ phase, startNs, endNs, clients }: Awarding): Promise<FromAwardClient> {
  const counts = { added: 0, repeated: 0, refused: 0 };
  await untilNs(startNs);
  const work = async (client: number) => {
    const known = added.get(client) ?? 1;
    let n = 0;
    for (; nowNs() < endNs; n++) {
      const award = awardOf(client, phase, phase === 'repeat' ? n % known : n);
      counts[await ledger.award(award, phase === 'race' ? raceWaitMs : lockWaitMs)]++;
    }
    if (phase === 'award') added.set(client, n);
  };
  await Promise.all(clients.map(work));
  return { kind: 'awarded', ...counts };
}

const awardOf = (client: number, phase: Awarding['phase'], n: number): Award => ({
  userId: phase === 'race' ? 'racer' : `user-${client}`,
  sourceType: 'bench',
  sourceId: phase === 'race' ? String(Math.floor(nowNs() / raceNs)) : String(n),
  points: 1,
});

async function open(guard: Guard): Promise<FromAwardClient> {
  ledger = await openGuardedLedger(guard);
  return { kind: 'ready' };
}

process.on('message', async (message: ToAwardClient) => {
  const done = await (message.kind === 'guard' ? open(message) : award(message)); // an error ends the process
  process.send?.(done);
});
process.on('disconnect', () => process.exit(1));
