/** What the bench and the processes that contend for a lock say to each other, and the clock that they share. */

/** Where the servers of a contender are; what it does not use is empty. */
export interface ServerUrls {
  readonly redisUrl?: string;
  readonly redlockUrls?: readonly string[];
  readonly zookeeperUrl?: string;
  readonly databaseUrl?: string;
}

/** The first message to a process. */
export interface Order {
  readonly kind: 'order';
  readonly contender: string;
  readonly urls: ServerUrls;
  readonly resource: string;
  /** The numbers of this process's waiters, which no other process has. */
  readonly waiters: readonly number[];
  /** A holder lets one turn of the event loop pass before it releases, so that a second holder could be seen. */
  readonly holdsATurn: boolean;
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

/** One grant: who asked when, was granted it when, and called release when. */
export interface Cycle {
  readonly waiter: number;
  readonly askedNs: number;
  readonly grantedNs: number;
  readonly releasedNs: number;
}

/** A waiter that had not been granted what it asked for when the run was over. */
export interface Waiting {
  readonly waiter: number;
  readonly askedNs: number;
}

/** What a process's clients sent between two moments. */
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
