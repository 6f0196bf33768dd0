/**
 * The interface of a fault. Three clients want one lock: A holds it when the fault strikes, B and C wait.
 *
 *   before ─▶ A asks and is granted; B and C ask ─▶ strike ─▶ (lastsMs) ─▶ heal ─▶ until all are served, or time is up
 *
 * A fault injects into real processes, servers and connections. Where a subject cannot meet it, it says why.
 */
import type { LockCell } from '../clients/lock-cells.ts';
import type { TcpProxy } from '../proxy.ts';
import type { Group, LabServers } from '../servers/lab-servers.ts';

/** What a fault can reach. */
export interface Scene {
  readonly lock: LockCell;
  readonly servers: LabServers;
  /** The process that holds the lock. */
  readonly holder: { signal(name: 'SIGKILL' | 'SIGSTOP' | 'SIGCONT'): void };
  /** The connections of A, one proxy for each server. */
  readonly links: readonly TcpProxy[];
  /** The connections of B and C. */
  readonly others: readonly TcpProxy[];
}

export interface LockFault {
  readonly name: string;
  /** The head of its column. */
  readonly title: string;
  /** One sentence: when this happens in real life. */
  readonly happens: string;
  /** What it needs behind the lock's servers; by default nothing. */
  readonly group?: Group;
  /** How long A works; B and C work 0.7 s. */
  readonly workMs: number;
  /** Why a lock does not meet it; null: it does. */
  lacks?(lock: LockCell): string | null;
  /** Before A asks. */
  before?(scene: Scene): Promise<void>;
  /** Strikes when A asks, and not when it holds. */
  readonly atAsking?: boolean;
  strike(scene: Scene): Promise<void>;
  readonly lastsMs: number;
  heal?(scene: Scene): Promise<void>;
}

/** Leases of the lab, in ms. */
export const TTL_MS = 1_000;
