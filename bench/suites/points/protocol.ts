/** The messages between the suite and the processes that award points. */

export interface Open {
  readonly kind: 'open';
  readonly databaseUrl: string;
  readonly redisUrl: string;
  /** A name in LOCK; null: POINTS_GUARD=unique-key. */
  readonly lock: string | null;
  /** The numbers of this process's clients. */
  readonly clients: readonly number[];
}

/**
 * - award: every award is a new one
 * - repeat: those of `award` again
 * - race: all clients of all processes send the same award, a new one every few milliseconds
 */
export type Phase = 'award' | 'repeat' | 'race';

export interface Go {
  readonly kind: 'go';
  readonly phase: Phase;
  readonly startNs: number;
  readonly endNs: number;
}

export type ToWorker = Open | Go;
export type Ready = { readonly kind: 'ready' };
export interface Done extends Readonly<Record<'added' | 'repeated' | 'refused', number>> {
  readonly kind: 'done';
}
export type FromWorker = Ready | Done;
