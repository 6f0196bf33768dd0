/** The messages between the bench and the processes that contend for a lock. */

import type { ServerUrls } from '../../../lab/clients/open-lock.ts';

/** The first message to a process. */
export interface Order {
  readonly kind: 'order';
  readonly lock: string;
  readonly urls: ServerUrls;
  readonly resource: string;
  /** The numbers of this process's waiters, from 0. */
  readonly waiters: readonly number[];
  /** A holder yields to the event loop before it releases, so that a second holder could be seen. */
  readonly yieldsWhileHolding: boolean;
}

/** What is measured lies in here. */
export interface Span {
  readonly startNs: number;
  readonly endNs: number;
}

/** All waiters begin at one moment. */
export interface Go extends Span {
  readonly kind: 'go';
  readonly beginNs: number;
}

export type ToWorker = Order | Go;

/** Its lock is open; what it measured. */
export type Ready = { readonly kind: 'ready' };
export type Done = { readonly kind: 'done'; readonly report: WorkerReport };
export type FromWorker = Ready | Done;

/** A waiter without a grant at the end of the run. */
export interface Waiting {
  readonly waiter: number;
  readonly askedNs: number;
}

/** One grant: when a waiter asked, was granted, and called release. */
export interface Cycle extends Waiting {
  readonly grantedNs: number;
  readonly releasedNs: number;
}

export interface WorkerReport {
  readonly cycles: readonly Cycle[];
  readonly waiting: readonly Waiting[];
  /** What the clients of the process sent between two moments. */
  readonly sent: { readonly fromNs: number; readonly toNs: number; readonly requests: number };
  /** Acquisitions that ended without a lock although time was not up, by reason. */
  readonly refusals: Readonly<Record<string, number>>;
}
