/** A Redis Cluster: three masters, each with a replica. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Cluster, Command, Redis } from 'ioredis';
import { type RedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import { freePort } from '../../src/local/server-process.ts';
import { eventually } from './client.ts';

const MASTERS = 3;
const SLOTS = 16_384;
const ARGS = ['--appendonly', 'no', '--repl-diskless-sync-delay', '0', '--repl-ping-replica-period', '1'];

interface Member {
  server: RedisServer;
  readonly id: string;
  readonly busPort: number;
  /** Past the cluster; it reconnects. */
  readonly client: Redis;
}

export interface TestCluster extends AsyncDisposable {
  /** redis+cluster://… */
  readonly url: string;
  /** A client of the whole cluster. The caller disconnects it. */
  client(): Promise<Redis>;
  /** SIGKILL of the master that has a key; waits until its replica is the master, and starts the old one again. */
  kill(key: string): Promise<void>;
  /** Has the replica of the master that has a key take over, as an operator does before maintenance. */
  switchOver(key: string): Promise<void>;
  /** Moves the slot of a key to another master, one key after the other, and calls `between` after each. */
  moveSlot(key: string, between?: () => Promise<void>): Promise<void>;
}

export async function openCluster(): Promise<TestCluster> {
  const folder = await mkdtemp(path.join(tmpdir(), 'stampede-test-cluster-'));
  const start = (n: number, busPort: number, port?: number): Promise<RedisServer> =>
    startRedisServer({
      folder: path.join(folder, String(n)),
      args: [
        ...ARGS,
        ...['--cluster-enabled', 'yes', '--cluster-port', String(busPort)],
        ...['--cluster-node-timeout', '1000', '--cluster-replica-validity-factor', '0'],
      ],
      ...(port !== undefined && { port }),
    });
  const members = await Promise.all(Array.from({ length: 2 * MASTERS }, (_, n) => open(n)));

  async function open(n: number): Promise<Member> {
    const busPort = await freePort();
    const server = await start(n, busPort);
    const client = new Redis(server.port, { retryStrategy: () => 50 });
    client.on('error', () => {});
    await client.cluster('SET-CONFIG-EPOCH', n + 1);
    return { server, id: await client.cluster('MYID'), busPort, client };
  }

  const masters = members.slice(0, MASTERS);
  for (const [i, { client }] of masters.entries()) {
    const [first, end] = [Math.floor((i * SLOTS) / MASTERS), Math.floor(((i + 1) * SLOTS) / MASTERS)];
    await client.call('CLUSTER', 'ADDSLOTSRANGE', first, end - 1);
  }
  for (const { server, busPort } of members.slice(1))
    await members[0]!.client.call('CLUSTER', 'MEET', '127.0.0.1', server.port, busPort);
  const state = (of: Member) => of.client.call('CLUSTER', 'INFO') as Promise<string>;
  await everywhere(state, (text) => text.includes(`cluster_known_nodes:${members.length}`));
  for (const [i, { client }] of members.slice(MASTERS).entries())
    await client.cluster('REPLICATE', masters[i]!.id);
  await everywhere(state, (text) => text.includes('cluster_state:ok'));
  await everywhere(
    nodesOf,
    (nodes) => nodes.filter(({ flags }) => flags.includes('slave')).length === MASTERS,
  );
  await untilLinked();

  /** Waits until all members that answer see it. */
  async function everywhere<T>(
    probe: (of: Member) => Promise<T>,
    holds: (value: T) => boolean,
  ): Promise<void> {
    await eventually(
      () => Promise.all(members.map((member) => probe(member).catch(() => null))),
      (all) => all.every((value) => value !== null && holds(value)),
      60_000,
    );
  }

  /** Every replica has what its master had, and follows it. */
  function untilLinked(): Promise<void> {
    const linked = /role:master|master_link_status:up/;
    return everywhere(
      ({ client }) => client.info('replication'),
      (info) => linked.test(info),
    );
  }

  interface Node {
    readonly id: string;
    readonly flags: readonly string[];
    readonly master: string;
    readonly ranges: readonly (readonly [number, number])[];
  }
  async function nodesOf({ client }: Member): Promise<Node[]> {
    const lines = ((await client.cluster('NODES')) as string).trim().split('\n');
    return lines.map((line) => {
      const [id = '', , flags = '', master = '', , , , , ...ranges] = line.split(' ');
      return {
        id,
        flags: flags.split(','),
        master,
        ranges: ranges
          .filter((range) => !range.startsWith('['))
          .map((range) => range.split('-').map(Number))
          .map(([from, to]) => [from!, to ?? from!] as const),
      };
    });
  }

  const slotOf = (key: string): number => new Command('get', [key]).getSlot()!;
  /** As all members that answer see it, the master of a key. */
  async function masterOf(key: string): Promise<Member> {
    const slot = slotOf(key);
    const views = await Promise.all(members.map((member) => nodesOf(member).catch(() => [])));
    const owners = views
      .flat()
      .filter(
        ({ flags, ranges }) => flags.includes('master') && ranges.some(([a, b]) => a <= slot && slot <= b),
      );
    const ids = new Set(owners.map(({ id }) => id));
    if (ids.size !== 1) throw new Error(`${ids.size} masters have slot ${slot}`);
    return members.find(({ id }) => ids.has(id))!;
  }
  async function replicaOf({ id }: Member): Promise<Member> {
    const nodes = await nodesOf(members.find((member) => member.id !== id)!);
    const replica = nodes.find(({ master, flags }) => master === id && flags.includes('slave'));
    return members.find((member) => member.id === replica?.id)!;
  }
  const untilAnother = (key: string, old: Member): Promise<unknown> =>
    eventually(
      () => masterOf(key).catch(() => old),
      (now) => now !== old,
      60_000,
    );

  return {
    url: `redis+cluster://${members.map(({ server }) => `127.0.0.1:${server.port}`).join(',')}`,
    async client() {
      const client = new Cluster(members.map(({ server }) => ({ host: '127.0.0.1', port: server.port })));
      client.on('error', () => {});
      return client as unknown as Redis;
    },
    async kill(key) {
      const old = await masterOf(key);
      await old.server.kill();
      await untilAnother(key, old);
      old.server = await start(members.indexOf(old), old.busPort, old.server.port);
      await untilLinked();
    },
    async switchOver(key) {
      const old = await masterOf(key);
      const replica = await replicaOf(old);
      await replica.client.cluster('FAILOVER');
      await untilAnother(key, old);
      await untilLinked();
    },
    async moveSlot(key, between = async () => {}) {
      const from = await masterOf(key);
      const to = masters.find((member) => member !== from)!;
      const slot = slotOf(key);
      await to.client.cluster('SETSLOT', slot, 'IMPORTING', from.id);
      await from.client.cluster('SETSLOT', slot, 'MIGRATING', to.id);
      for (;;) {
        const [one] = (await from.client.cluster('GETKEYSINSLOT', slot, 1)) as string[];
        if (one === undefined) break;
        await from.client.call('MIGRATE', '127.0.0.1', to.server.port, one, 0, 5_000);
        await between();
      }
      for (const member of [to, from, ...members.filter((other) => other !== to && other !== from)])
        await member.client.cluster('SETSLOT', slot, 'NODE', to.id).catch(() => {}); // a replica refuses
    },
    async [Symbol.asyncDispose]() {
      for (const { client } of members) client.disconnect();
      await Promise.all(members.map(({ server }) => server.kill()));
      await rm(folder, { recursive: true, force: true });
    },
  };
}
