/** The servers of one trial of the lab: real ones, started for it. */
import { writeFile } from 'node:fs/promises';
import type { ServerUrls } from '../clients/open-lock.ts';
import type { Link } from '../proxy.ts';

/** One server that can be killed and started again. */
export interface Node {
  readonly port: number;
  /** Writes its data to its file. */
  save(): Promise<void>;
  kill(): Promise<void>;
  /** @param empty without its file */
  start(empty: boolean): Promise<void>;
  /** Sets the bytes beyond which a Redis refuses writes; 0: no limit. */
  setMemory(bytes: number): Promise<void>;
  /** Fills the file system of a Postgres that was opened with `smallDisk`, or clears it. */
  setDisk(isFull: boolean): Promise<void>;
}

/**
 * The group behind a server.
 *
 * - sentinels: a replica of Redis, and three Sentinels that promote it
 * - cluster: six members of a Redis Cluster
 * - standby, synchronous-standby: of Postgres; promoted by the lab
 * - ensemble: ZooKeeper on three servers
 */
export type Group = 'sentinels' | 'cluster' | 'standby' | 'synchronous-standby' | 'ensemble';

export interface LabServers extends AsyncDisposable {
  /** The servers that hold the lock or the sale, including all three of an ensemble; no replicas. */
  readonly nodes: readonly Node[];
  /** @param ports that lead to the nodes, in their order */
  urls(ports: readonly number[]): ServerUrls;
  /** Where a client learns which server of the group is the primary; null: there is no such address. */
  readonly groupUrls: ServerUrls | null;
  /** The group's own links for clients; null: the lab's proxy leads to node 0. */
  readonly ways: Pick<Link, 'set'> | null;
  /** For the audit: the servers that have the data now, past the lab's proxies. */
  currentUrls(): Promise<ServerUrls>;
  /** Sets the clock of a node, in ms from the true one. */
  setClock(node: number, aheadMs: number): Promise<void>;
  /** From now on replicas miss the primary's writes, and no server notices. */
  stopReplication(): Promise<void>;
  /** Cuts a node off from the other servers of its group. Clients that reach it directly still do. */
  cutOff(node: number): Promise<void>;
  /** Ends every cut. */
  rejoin(): Promise<void>;
  /** Waits until a replica is the primary; promotes it if no server of the group does. @returns its port */
  promoted(): Promise<number>;
  /** Which node leads the ensemble. */
  leader(): Promise<number>;
}

export interface LabOptions {
  /** An empty folder. */
  readonly folder: string;
  /** The result of `buildClock`. */
  readonly clock: string | null;
  readonly group: Group | null;
  /** The program of the Redis servers; by default the installed one. */
  readonly program?: string | null;
  /** Replicas of a single Redis; with Sentinels at least one. */
  readonly replicas?: number;
  /** For a sale: Redis writes an append-only file, and the service prepares Postgres. */
  readonly durable?: boolean;
  /** The data of Postgres is on a file system that the lab can fill. Needs root. */
  readonly smallDisk?: boolean;
}

/** The clock of a server. @param library the result of `buildClock` @param file what the library reads */
export const clockIn = (library: string | null, file: string) => ({
  environment: library === null ? {} : { LD_PRELOAD: library, STAMPEDE_CLOCK: file },
  set: (aheadMs: number): Promise<void> => writeFile(file, `${aheadMs}\n`),
});

const never = async (): Promise<never> => {
  throw new Error('these servers have none');
};

/** Methods missing from a node, or from servers without a group: each rejects. */
export const lacking = {
  node: { save: never, kill: never, start: never, setMemory: never, setDisk: never },
  group: {
    groupUrls: null,
    ways: null,
    setClock: never,
    stopReplication: never,
    cutOff: never,
    rejoin: never,
    promoted: never,
    leader: never,
  },
} as const;
