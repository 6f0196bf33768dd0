/** The servers of one trial of the lab: real ones, started for it. */
import type { ServerUrls } from '../clients/open-lock.ts';
import type { Link } from '../proxy.ts';

/** One server that can be killed and started again. */
export interface Node {
  readonly port: number;
  /** Writes what it has to its file. */
  save(): Promise<void>;
  kill(): Promise<void>;
  /** @param empty without its file */
  start(empty: boolean): Promise<void>;
  /** A Redis refuses writes beyond so many bytes from now on; 0: none. */
  setMemory(bytes: number): Promise<void>;
  /** Fills the file system of a Postgres that was opened with `smallDisk`, or clears it. */
  setDisk(isFull: boolean): Promise<void>;
}

/**
 * What stands behind a server.
 *
 * - sentinels: a replica of Redis, and three Sentinels that promote it
 * - cluster: six members of a Redis Cluster
 * - standby, synchronous-standby: of Postgres; promoted by the lab
 * - ensemble: ZooKeeper on three servers
 */
export type Group = 'sentinels' | 'cluster' | 'standby' | 'synchronous-standby' | 'ensemble';

export interface LabServers extends AsyncDisposable {
  /** Those that hold the lock or the sale, and all three of an ensemble. Replicas are none of them. */
  readonly nodes: readonly Node[];
  /** @param ports the ways to the nodes, in their order */
  urls(ports: readonly number[]): ServerUrls;
  /** Where a client learns which server of the group is the primary; null: there is no such address. */
  readonly groupUrls: ServerUrls | null;
  /** The ways of clients to the group, where they are its own; null: the lab's proxy leads to node 0. */
  readonly ways: Pick<Link, 'set'> | null;
  /** For the audit, past every proxy: the servers that have the data now. */
  currentUrls(): Promise<ServerUrls>;
  /** Sets the clock of a node, in ms from the true one. */
  setClock(node: number, aheadMs: number): Promise<void>;
  /** From now on the copies miss what the primary gets, and no server notices. */
  stopReplication(): Promise<void>;
  /** Cuts a node off from the other servers of its group. Clients that reach it directly still do. */
  cutOff(node: number): Promise<void>;
  /** Ends every cut. */
  rejoin(): Promise<void>;
  /** Waits until a copy is the primary; promotes it where no server of the group does. @returns its port */
  promoted(): Promise<number>;
  /** Which node leads the ensemble. */
  leader(): Promise<number>;
}

export interface LabOptions {
  /** An empty one. */
  readonly folder: string;
  /** What `buildClock` returned. */
  readonly clock: string | null;
  readonly group: Group | null;
  /** What the Redis servers run; by default the one that is installed. */
  readonly program?: string | null;
  /** How many a single Redis has, without Sentinels. */
  readonly replicas?: number;
  /** For a sale: Redis writes an append-only file, and the service prepares Postgres. */
  readonly durable?: boolean;
  /** The data of Postgres is on a file system that the lab can fill. Needs root. */
  readonly smallDisk?: boolean;
}

const never = async (): Promise<never> => {
  throw new Error('these servers have none');
};

/** The methods that a node, or servers without a group, lack: each rejects. */
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
