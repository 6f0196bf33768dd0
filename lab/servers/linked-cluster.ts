/**
 * A Redis Cluster: three masters, each with a replica. For the fault lab, and for tests. All others reach a member through two
 * proxies, for clients and for the cluster's own bus, whose ports it announces. Its own connections come from an address by
 * which the other proxies recognize them, so that it can be cut off.
 */
import { rm } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import { Cluster, Command, type Redis } from 'ioredis';
import { eventually } from '../kit/eventually.ts';
import { temporaryFolder } from '../kit/temporary-folder.ts';
import { type LinkMode, TcpProxy } from '../proxy.ts';
import { type ClusterMember, type RedisCluster, startRedisCluster } from './cluster.ts';

/** A member that takes longer counts as silent. */
const SILENT_MS = 1_000;

interface Node {
  readonly id: string;
  readonly flags: readonly string[];
  readonly master: string;
  /** The higher one wins where two members claim the same slots. */
  readonly epoch: number;
  readonly ranges: readonly (readonly [number, number])[];
}

/** The cluster as one member sees it. */
async function nodesOf({ client }: ClusterMember): Promise<Node[]> {
  const lines = ((await client.cluster('NODES')) as string).trim().split('\n');
  return lines.map((line) => {
    const [id = '', , flags = '', master = '', , , epoch, , ...ranges] = line.split(' ');
    return {
      id,
      flags: flags.split(','),
      master,
      epoch: Number(epoch),
      ranges: ranges
        .filter((range) => !range.startsWith('['))
        .map((range) => range.split('-').map(Number))
        .map(([from, to]) => [from!, to ?? from!] as const),
    };
  });
}

const slotOf = (key: string): number => new Command('get', [key]).getSlot()!;

interface Way {
  readonly address: string;
  readonly links: readonly TcpProxy[];
}

export async function openLinkedCluster(): Promise<LinkedCluster> {
  const folder = await temporaryFolder('stampede-cluster-');
  const ways: Way[] = [];
  const cluster = await startRedisCluster(folder, 3, 1, async (port, busPort, address) => {
    const links = [await TcpProxy.open({ port }), await TcpProxy.open({ port: busPort })] as const;
    ways.push({ address, links });
    return { port: links[0].port, busPort: links[1].port };
  });
  const linked = new LinkedCluster(folder, cluster, ways);
  await linked.untilSettled();
  return linked;
}

export class LinkedCluster implements AsyncDisposable {
  /** redis+cluster://… */
  readonly url: string;
  /** Where the first member listens. */
  readonly port: number;
  readonly #folder: string;
  readonly #cluster: RedisCluster;
  readonly #members: readonly ClusterMember[];
  readonly #ways: readonly Way[];

  constructor(folder: string, cluster: RedisCluster, ways: readonly Way[]) {
    this.#folder = folder;
    this.#cluster = cluster;
    this.#members = cluster.members;
    this.#ways = ways;
    this.url = cluster.url;
    this.port = cluster.members[0]!.port;
  }

  /** Sets all proxies, for clients and members. */
  set(mode: LinkMode): void {
    for (const link of this.#ways.flatMap(({ links }) => links)) link.set(mode);
  }

  /** A client of the whole cluster. The caller disconnects it. */
  async client(): Promise<Redis> {
    const client = new Cluster(this.#members.map(({ port }) => ({ host: '127.0.0.1', port })));
    client.on('error', () => {});
    return client as unknown as Redis;
  }

  /** SIGKILL of the master that has a key; waits until its replica is the master, and starts the old one again. */
  async kill(key: string): Promise<void> {
    const old = await this.#masterOf(key);
    await old.kill();
    await this.#untilAnother(key, old);
    await old.restart();
    await this.untilSettled();
  }

  /** As `kill`, with a master that is cut off, and then rejoins. */
  async cut(key: string): Promise<void> {
    const untilPromoted = await this.cutOff(key);
    await untilPromoted();
    await this.rejoin();
  }

  /** Has the replica of the master that has a key take over, as an operator does before maintenance. */
  async 'switch-over'(key: string): Promise<void> {
    const old = await this.#masterOf(key);
    const replica = await this.#replicaOf(old);
    await replica.client.cluster('FAILOVER');
    await this.#untilAnother(key, old);
    await this.untilSettled();
  }

  /** Moves the slot of a key to another master, one key after the other, and calls `between` after each. */
  async moveSlot(key: string, between = async () => {}): Promise<void> {
    await moveSlot(this.#members, await this.#masterOf(key), slotOf(key), between);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#cluster[Symbol.asyncDispose]();
    await Promise.all(this.#ways.flatMap(({ links }) => links.map((link) => link.close())));
    await rm(this.#folder, { recursive: true, force: true });
  }

  /** Waits until all members agree that three are replicas and none failed, and each replica follows its master. */
  async untilSettled(): Promise<void> {
    await this.#cluster.everywhere(nodesOf, (nodes) => {
      const flags = nodes.flatMap((node) => node.flags);
      return (
        flags.filter((flag) => flag === 'slave').length === 3 && !flags.some((flag) => /^fail/.test(flag))
      );
    });
    const linked = /role:master|master_link_status:up/;
    await this.#cluster.everywhere(
      ({ client }) => client.info('replication'),
      (info) => linked.test(info),
    );
  }

  /** The master of a key, as the answering members see it; a master that is cut off still sees itself. */
  async #masterOf(key: string): Promise<ClusterMember> {
    const slot = slotOf(key);
    const views = await Promise.all(
      this.#members.map((member) => Promise.race([nodesOf(member).catch(() => []), sleep(SILENT_MS, [])])),
    );
    const [owner] = views
      .flat()
      .filter(
        ({ flags, ranges }) => flags.includes('master') && ranges.some(([a, b]) => a <= slot && slot <= b),
      )
      .sort((a, b) => b.epoch - a.epoch);
    if (owner === undefined) throw new Error(`no master has slot ${slot}`);
    return this.#members.find(({ id }) => id === owner.id)!;
  }
  async #replicaOf({ id }: ClusterMember): Promise<ClusterMember> {
    const nodes = await nodesOf(this.#members.find((member) => member.id !== id)!);
    const replica = nodes.find(({ master, flags }) => master === id && flags.includes('slave'));
    return this.#members.find((member) => member.id === replica?.id)!;
  }

  #untilAnother(key: string, old: ClusterMember): Promise<unknown> {
    return eventually(
      () => this.#masterOf(key).catch(() => old),
      (now) => now !== old,
      60_000,
    );
  }

  /** @param address null: none is cut off */
  #isolate(address: string | null): void {
    for (const way of this.#ways)
      for (const link of way.links) {
        link.set(way.address === address ? 'black-hole' : 'pass');
        link.lose(address);
      }
  }

  /**
   * Cuts the master that has a key off from clients and from the other members: what is sent to it, or by it, is lost.
   * @returns a wait until its replica is the master
   */
  async cutOff(key: string): Promise<() => Promise<unknown>> {
    const old = await this.#masterOf(key);
    this.#isolate(this.#ways[this.#members.indexOf(old)]!.address);
    return () => this.#untilAnother(key, old);
  }

  /** Ends the cut, and waits until the cluster has settled. */
  async rejoin(): Promise<void> {
    this.#isolate(null);
    await this.untilSettled();
  }
}

/** @returns false while a member that got no ping of the others in time considers the cluster down */
const migrate = ({ client }: ClusterMember, to: ClusterMember, key: string): Promise<boolean> =>
  client.call('MIGRATE', '127.0.0.1', to.port, key, 0, 5_000).then(
    () => true,
    (error: Error) => {
      if (!error.message.includes('CLUSTERDOWN')) throw error;
      return false;
    },
  );

/** Moves a slot from its master to another one, key by key. */
async function moveSlot(
  members: readonly ClusterMember[],
  from: ClusterMember,
  slot: number,
  between: () => Promise<void>,
): Promise<void> {
  const others = (await nodesOf(from)).filter((one) => one.id !== from.id && one.ranges.length > 0);
  const to = members.find(({ id }) => id === others[0]?.id)!;
  await to.client.cluster('SETSLOT', slot, 'IMPORTING', from.id);
  await from.client.cluster('SETSLOT', slot, 'MIGRATING', to.id);
  for (;;) {
    const [one] = (await from.client.cluster('GETKEYSINSLOT', slot, 1)) as string[];
    if (one === undefined) break;
    await eventually(() => migrate(from, to, one), Boolean);
    await between();
  }
  for (const member of [to, from, ...members.filter((other) => other !== to && other !== from)])
    await member.client.cluster('SETSLOT', slot, 'NODE', to.id).catch(() => {}); // a replica refuses
}
