/**
 * The interface of a fault. Three clients want one lock: A holds it when the fault strikes, B and C wait.
 *
 *   before ─▶ A asks and is granted; B and C ask ─▶ strike ─▶ (lastsMs) ─▶ heal ─▶ until all are served, or time is up
 *
 * A fault acts on real processes, servers and connections. If it does not apply to a lock, `lacks` says why.
 */
import type { LockCell } from '../clients/lock-cells.ts';
import type { TcpProxy } from '../proxy.ts';
import type { Group, LabServers } from '../servers/lab-servers.ts';

/** The reach of a fault. */
export interface Scene {
  readonly lock: LockCell;
  readonly servers: LabServers;
  /** The process that holds the lock. */
  readonly holder: { pause(): Promise<void>; signal(name: 'SIGKILL' | 'SIGCONT'): void };
  /** The connections of A, one proxy for each server. */
  readonly links: readonly TcpProxy[];
  /** The connections of B and C. */
  readonly others: readonly TcpProxy[];
}

export interface LockFault {
  readonly name: string;
  /** The heading of its column. */
  readonly title: string;
  /** One sentence: when this happens in real life. */
  readonly happens: string;
  /** The group it needs behind the lock's servers; by default none. */
  readonly group?: Group;
  /** Lease length in ms, where the strike has to end within the lease; by default `TTL_MS`. */
  readonly leaseMs?: number;
  /** How long A works; B and C work 0.7 s. */
  readonly workMs: number;
  /** Why it does not apply to a lock; null: it does. */
  lacks?(lock: LockCell): string | null;
  /** Runs before A asks. */
  before?(scene: Scene): Promise<void>;
  /** Strikes just before A asks, not when A holds. */
  readonly atAsking?: boolean;
  strike(scene: Scene): Promise<void>;
  readonly lastsMs: number;
  heal?(scene: Scene): Promise<void>;
}

/** Default lease length of the lab, in ms. */
export const TTL_MS = 1_000;
