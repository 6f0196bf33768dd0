/** The messages between the bench and the processes that contend for a lock, and the clock that they share. */

/** Where the servers of a lock are; what it does not use is left out. */
export interface ServerUrls {
  readonly redisUrl?: string;
  readonly redlockUrls?: readonly string[];
  readonly zookeeperUrl?: string;
  readonly databaseUrl?: string;
}

/** The first message to a process. */
export interface Order {
  readonly kind: 'order';
  readonly lock: string;
  readonly urls: ServerUrls;
  readonly resource: string;
  /** The numbers of this process's waiters. */
  readonly waiters: readonly number[];
  /** A holder yields to the event loop before it releases, so that a second holder could be seen. */
  readonly yieldsWhileHolding: boolean;
}

/** All waiters begin at one moment; what is measured lies between `startNs` and `endNs`. */
export interface Go {
  readonly kind: 'go';
  readonly beginNs: number;
  readonly startNs: number;
  readonly endNs: number;
}

export type ToWorker = Order | Go;

export type FromWorker =
  | { readonly kind: 'ready' }
  | { readonly kind: 'failed'; readonly reason: string }
  | { readonly kind: 'done'; readonly report: WorkerReport };

/** One grant: when a waiter asked, was granted, and called release. */
export interface Cycle {
  readonly waiter: number;
  readonly askedNs: number;
  readonly grantedNs: number;
  readonly releasedNs: number;
}

/** A waiter without a grant at the end of the run. */
export interface Waiting {
  readonly waiter: number;
  readonly askedNs: number;
}

/** What the clients of a process sent between two moments. */
export interface Sent {
  readonly fromNs: number;
  readonly toNs: number;
  readonly requests: number;
}

export interface WorkerReport {
  readonly cycles: readonly Cycle[];
  readonly waiting: readonly Waiting[];
  readonly sent: Sent;
  /** Acquisitions that ended without a lock although time was not up, by reason. */
  readonly refusals: Readonly<Record<string, number>>;
}

/** Length of every lease: the service's own default. No hold comes near it. */
export const TTL_MS = 10_000;

/**
 * Nanoseconds on the machine's monotonic clock, which all processes share. A number holds them exactly for the first
 * 104 days that the machine is up, and to 2 ns after that.
 */
export const nowNs = (): number => Number(process.hrtime.bigint());

/** Sleeps until a moment of that clock. */
export async function untilNs(ns: number): Promise<void> {
  for (let leftMs = (ns - nowNs()) / 1e6; leftMs > 0; leftMs = (ns - nowNs()) / 1e6) {
    await new Promise((resolve) => setTimeout(resolve, leftMs));
  }
}

export interface WaitOptions {
  readonly waitMs: number;
  readonly signal: AbortSignal;
}

export type Acquired =
  | { readonly kind: 'held'; release(): Promise<unknown> }
  | { readonly kind: 'refused'; readonly reason: string };

/** As much of a lock as is measured. */
export interface BenchLock {
  acquire(resource: string, options: WaitOptions): Promise<Acquired>;
  close(): Promise<void>;
}
