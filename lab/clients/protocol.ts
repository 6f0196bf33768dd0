/**
 * The commands from a parent to a process of lock clients, and the replies. A client is one lock with its own connections. Each
 * command has one reply. A holder also reports each step when it happens, so that the steps of a killed process are known.
 *
 *   open ─▶ contend │ hold │ claim │ count ─▶ close;  leave
 *   claim ──end──▶ its reply    claim ──crash──▶ its reply; nothing was released
 */
import type { ServerUrls } from './open-lock.ts';

export interface LockToOpen {
  readonly lock: string;
  readonly urls: ServerUrls;
  /** How long every lease lasts; by default as long as the service's. */
  readonly ttlMs?: number;
}

/** The measured time, from start to end, on the machine's monotonic clock. */
export interface Span {
  readonly startNs: number;
  readonly endNs: number;
}

/** Waiters who acquire, hold and release in a loop. */
export interface Contention extends Span {
  readonly resource: string;
  /** Their numbers, unique among all processes. */
  readonly waiters: readonly number[];
  /** All waiters of all processes begin at this moment. */
  readonly beginNs: number;
  /** A holder yields to the event loop before it releases, so that a second holder could be seen. */
  readonly yieldsWhileHolding: boolean;
}

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

export interface ContentionReport {
  readonly cycles: readonly Cycle[];
  readonly waiting: readonly Waiting[];
  /** Requests of the process's clients between two moments. */
  readonly sent: { readonly fromNs: number; readonly toNs: number; readonly requests: number };
  /** Acquisitions that ended without a lock although time was not up, by reason. */
  readonly refusals: Readonly<Record<string, number>>;
}

/** One holder that writes: it acquires within `patienceMs`, writes for `workMs` or until its lease is lost, and releases. */
export interface Holding {
  readonly resource: string;
  readonly workMs: number;
  readonly patienceMs: number;
}

/** One claim of a schedule: wait for the lock, hold it, release it. */
export interface Claim {
  /** `b` is a second contender on its client's lock. */
  readonly contender: 'a' | 'b';
  /** From the start of the schedule. */
  readonly atMs: number;
  readonly waitMs: number;
  readonly holdMs: number;
}

/** A client's part in a schedule. */
export interface Part {
  readonly resource: string;
  /** On the machine's monotonic clock. */
  readonly startMs: number;
  readonly ttlMs: number;
  readonly claims: readonly Claim[];
}

/** A holder's record of a lease; times on the machine's monotonic clock, in milliseconds. */
export interface LeaseRecord {
  readonly contender: 'a' | 'b';
  /** Before the acquire. */
  readonly requestedMs: number;
  /** After the first valid check. */
  readonly firstMs: number;
  /** Before each of the latest valid checks, in order. */
  readonly latestMs: readonly number[];
  /** late: its release came after the expiry, or had no reply. */
  readonly end: 'released' | 'late' | 'lost' | 'crashed';
}

/** The result of a client's claims. */
export interface PartResult {
  readonly leases: readonly LeaseRecord[];
  readonly contended: number;
  readonly unavailable: number;
}

/** The leftovers of a process after a lock was used in every way and closed. */
export interface Leftovers {
  /** Timers and sockets, by their kind. */
  readonly left: readonly string[];
  /** How the acquire that waited when the lock closed ended; "waits": it did not end. */
  readonly waiter: string;
}

/** The argument and the reply of each command. */
export interface Commands {
  open(what: LockToOpen): void;
  contend(what: Contention): ContentionReport;
  hold(what: Holding): void;
  claim(what: Part): PartResult;
  /** Increments an unprotected counter in Redis under the lock. */
  count(what: { readonly resource: string; readonly times: number; readonly counterUrl: string }): void;
  /** Opens a lock for itself, and needs no client. */
  leave(what: LockToOpen & { readonly resource: string }): Leftovers;
  /** Stops its own process, with all clients. */
  stop(what: object): void;
  end(what: object): void;
  crash(what: object): void;
  close(what: object): void;
}

export type What<Name extends keyof Commands> = Parameters<Commands[Name]>[0];

export interface Command<Name extends keyof Commands = keyof Commands> {
  readonly id: number;
  readonly client: number;
  readonly name: Name;
  readonly what: What<Name>;
}

export interface Reply {
  readonly kind: 'reply';
  readonly id: number;
  readonly value?: unknown;
  readonly error?: string;
}

/** A step of a holder, on the machine's monotonic clock. */
export type HolderEvent = { readonly ns: number } & (
  | { readonly kind: 'asked' | 'wrote' | 'lost' | 'releasing' | 'released' }
  | { readonly kind: 'failed' | 'refused'; readonly reason: string }
  | { readonly kind: 'granted'; readonly fencingToken: number | null }
);
