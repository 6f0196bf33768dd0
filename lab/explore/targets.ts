/** What can be explored. */
import { strategies } from '../../src/service/core.ts';
import type { Target } from './process.ts';

/** It must have findings. */
export const CONTROL = 'unsafe';
const CONFIRMS = ['durable', 'accepted'] as const;
const LOCKS = ['redis', 'postgres-row'];

interface Wanted {
  /** Null: all but the control. */
  readonly strategies: readonly string[] | null;
  readonly confirm: string;
  readonly lock: string;
}

/** @returns the targets, or what is wrong with the request */
export function targetsOf(wanted: Wanted): Target[] | string {
  const known = [...strategies.keys()];
  const chosen = wanted.strategies ?? known.filter((name) => name !== CONTROL);
  const unknown = chosen.filter((name) => !known.includes(name));
  if (unknown.length > 0) return `there is no strategy ${unknown.join(', ')}; there are ${known.join(', ')}`;
  const confirms = CONFIRMS.filter((one) => wanted.confirm === 'both' || one === wanted.confirm);
  if (confirms.length === 0) return `--confirm must be durable, accepted or both, not "${wanted.confirm}"`;
  const locks = LOCKS.filter((one) => wanted.lock === 'both' || one === wanted.lock);
  if (locks.length === 0) return `--lock must be redis, postgres-row or both, not "${wanted.lock}"`;
  return chosen.flatMap((strategy) => {
    const { store, usesLock } = strategies.get(strategy)!.description;
    const ofStore = store === 'postgres' ? confirms.slice(0, 1) : confirms;
    const ofLock = usesLock ? locks : locks.slice(0, 1);
    return ofStore.flatMap((confirm) => ofLock.map((lock) => ({ strategy, confirm, lock })));
  });
}
