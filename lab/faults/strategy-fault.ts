/**
 * The interface of a fault that strikes a sale: the service, its stores, or the ways between them.
 *
 *   customers come ─▶ strike ─▶ (lastsMs) ─▶ heal ─▶ customers go on, then a crowd wants the last units ─▶ audit
 */
import type { Link } from '../proxy.ts';
import type { LabServers, Node } from '../servers/lab-servers.ts';

/** The reach of a fault. */
export interface Shop {
  readonly service: {
    /** SIGKILL. */
    kill(): Promise<void>;
    /** Starts the killed service, and waits until it listens. */
    start(): Promise<void>;
    signal(name: 'SIGSTOP' | 'SIGCONT'): void;
  };
  /** The node that has the sale when the trial begins, and its group. */
  readonly redis: Node & LabServers;
  readonly postgres: Node & LabServers;
  /** The service's connections. */
  readonly links: Readonly<Record<'redis' | 'postgres', Pick<Link, 'set'>>>;
}

export interface StrategyFault {
  readonly name: string;
  /** The heading of its column. */
  readonly title: string;
  /** One sentence: when this happens in real life. */
  readonly happens: string;
  /** It acts on a single Redis server; it does not apply to a cluster. */
  readonly onOneRedis?: true;
  /** The group it needs behind the stores; by default none. */
  readonly group?: 'sentinels' | 'standby' | 'synchronous-standby';
  /** It fills the disk of Postgres. */
  readonly smallDisk?: boolean;
  /** An accepted order may be lost: the store forgets what it acknowledged. */
  readonly loses?: true;
  strike(shop: Shop): Promise<void>;
  heal(shop: Shop): Promise<void>;
}

/** Time from the end of the strike to the heal, in ms. */
export const OUTAGE_MS = 2_000;
