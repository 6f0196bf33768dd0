/**
 * Three servers of Postgres that Patroni manages, with synchronous replication. It keeps the leader in etcd; HAProxy asks Patroni for it.
 * The programs are those of Debian's packages.
 *
 *   services ──▶ HAProxy ──▶ leader ══replication══▶ synchronous standby, replica
 *   each Patroni ──▶ [link] etcd
 *
 * A leader that does not reach etcd for `retry_timeout` stops accepting writes; the others elect one of them when its lease, `ttl`, is over.
 */
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { chown, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { chooseAccount } from '../../src/local/server-account.ts';
import { freePort, launch, type ServerProcess } from '../../src/local/server-process.ts';
import { migrate } from '../../src/service/startup.ts';
import { eventually } from '../kit/eventually.ts';
import { findProgram } from '../kit/processes.ts';
import { removeFolder, temporaryFolder } from '../kit/temporary-folder.ts';
import { TcpProxy } from '../proxy.ts';
import { withPostgres } from './stores.ts';
import { untilServes } from './until-serves.ts';

const NAMES = ['one', 'two', 'three'] as const;
/** Seconds; Patroni's defaults are 30, 10 and 10. `loop_wait` and twice `retry_timeout` must fit into `ttl`. */
const TIMES = { ttl: 8, loop_wait: 1, retry_timeout: 3 };
const [USER, PASSWORD] = ['stampede', 'lab'];
const START_MS = 120_000;
const PACKAGES = '/usr/lib/postgresql';
const programs = { patroni: 'patroni', etcd: 'etcd-server', haproxy: 'haproxy' };
const programOf = (name: string): string | null => findProgram(name, ['/usr/sbin', '/usr/bin']);

/** The folder of the newest Postgres of the system; the npm package lacks pg_basebackup and pg_rewind. */
function postgresFolder(): string | null {
  const majors = existsSync(PACKAGES) ? readdirSync(PACKAGES).map(Number) : [];
  const found = majors.sort((a, b) => b - a).map((major) => join(PACKAGES, String(major)));
  return found.find((folder) => existsSync(join(folder, 'bin/pg_rewind'))) ?? null;
}

/** @returns null when it can be started, or how to install it */
export function whyNoPatroni(): string | null {
  const missing = Object.entries(programs).flatMap(([name, one]) => (programOf(name) === null ? [one] : []));
  if (postgresFolder() === null) missing.push('postgresql');
  return missing.length === 0 ? null : `missing: apt-get install ${missing.join(' ')} (Debian, Ubuntu)`;
}

export async function openPatroni() {
  const folder = await temporaryFolder('stampede-patroni-');
  const processes: ServerProcess[] = [];
  const nodes: Node[] = [];
  const stop = async (): Promise<void> => {
    await Promise.all(nodes.map((node) => node.kill()));
    await Promise.all(processes.map((one) => one.kill()));
    await Promise.all(nodes.map(({ link }) => link.close()));
    await removeFolder(folder);
  };
  try {
    const etcd = await startEtcd(folder);
    processes.push(etcd.server);
    for (const name of NAMES) nodes.push(await nodeOf(folder, name, etcd.port));
    const [first, ...others] = nodes as [Node, ...Node[]];
    await first.start();
    await eventually(
      () => leadersOf(nodes),
      ({ length }) => length === 1,
      START_MS,
    );
    await Promise.all(others.map((node) => node.start()));
    const proxy = await startHaProxy(folder, nodes);
    processes.push(proxy.server);
    return { ...(await cluster(nodes, proxy.port)), [Symbol.asyncDispose]: stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function cluster(nodes: readonly Node[], port: number) {
  const urlOf = (hosts: string, database: string) => `postgresql://${USER}:${PASSWORD}@${hosts}/${database}`;
  const url = urlOf(`127.0.0.1:${port}`, 'stampede');
  const leader = async (): Promise<Node> =>
    (
      await eventually(
        () => leadersOf(nodes),
        ({ length }) => length === 1,
      )
    )[0]!;
  /** Waits until all are members, one is the synchronous standby, and HAProxy leads to the leader. */
  const untilWhole = async (): Promise<void> => {
    const look = async () => {
      const [first] = await leadersOf(nodes);
      const members = first === undefined ? [] : await first.members();
      const kinds = members.map(({ role, state }) => `${role} ${state}`).sort();
      return [...kinds, await isWritable(urlOf(`127.0.0.1:${port}`, 'postgres'))].join(', ');
    };
    const whole = /^leader running, replica (running|streaming), sync_standby (running|streaming), true$/;
    await eventually(look, (all) => whole.test(all), START_MS);
  };
  await untilWhole();
  await withPostgres(urlOf(`127.0.0.1:${port}`, 'postgres'), (client) =>
    client.query('CREATE DATABASE stampede'),
  );
  await migrate(url);
  const untilAnotherLeads = (old: Node) =>
    eventually(
      () => leadersOf(nodes),
      (all) => all.length === 1 && all[0] !== old,
      START_MS,
    );
  const pool = new pg.Pool({ connectionString: url, max: 4 });
  pool.on('error', () => {}); // the leader changes
  return {
    /** Through HAProxy. */
    url,
    /** Of all three. */
    direct: `${urlOf(nodes.map((node) => `127.0.0.1:${node.port}`).join(), 'stampede')}?target_session_attrs=read-write`,
    sql: () => pool,
    untilWhole,
    /** Makes the synchronous standby the leader, in order. */
    async switchOver(): Promise<void> {
      const old = await leader();
      const standby = (await old.members()).find(({ role }) => role === 'sync_standby')!;
      await old.ask('switchover', { leader: old.name, candidate: standby.name });
      await untilAnotherLeads(old);
    },
    /** Kills Patroni and Postgres of the leader, and starts them again when another one leads. */
    async kill(): Promise<void> {
      const old = await leader();
      await old.kill();
      await untilAnotherLeads(old);
      await old.start();
    },
    /** Kills Patroni alone: its Postgres accepts writes until Patroni runs again, when another one leads. */
    async killPatroni(): Promise<void> {
      const old = await leader();
      await old.killPatroni();
      await untilAnotherLeads(old);
      await old.start();
    },
    /** Loses all bytes between the leader's Patroni and etcd until another one leads. */
    async cutOff(): Promise<void> {
      const old = await leader();
      old.link.set('black-hole');
      await untilAnotherLeads(old);
      old.link.set('pass');
    },
  };
}

type Node = Awaited<ReturnType<typeof nodeOf>>;
interface Member {
  readonly name: string;
  readonly role: string;
  readonly state: string;
}

async function nodeOf(parent: string, name: string, etcdPort: number) {
  const folder = join(parent, name);
  const data = join(folder, 'data');
  await mkdir(folder, { mode: 0o700 });
  const tree = postgresFolder()!;
  const program = { path: join(tree, 'bin/postgres'), tree };
  const { account } = await chooseAccount({ server: 'Postgres', folder, program });
  const [port, restPort, link] = [
    await freePort(),
    await freePort(),
    await TcpProxy.open({ port: etcdPort }),
  ];
  const file = join(folder, 'patroni.json');
  const ports = { port, restPort, etcdPort: link.port };
  await writeFile(file, JSON.stringify(settingsOf({ name, folder, bin: join(tree, 'bin'), ...ports })));
  for (const path of [folder, file]) await chown(path, account.owner.uid, account.owner.gid);
  let patroni: ServerProcess | null = null;
  /** @returns null when it does not answer */
  const ask = async (path: string, body?: object): Promise<Response | null> => {
    const request = body && { method: 'POST', body: JSON.stringify(body) };
    return fetch(`http://127.0.0.1:${restPort}/${path}`, {
      ...request,
      signal: AbortSignal.timeout(30_000),
    }).catch(() => null);
  };
  const killPatroni = async (): Promise<void> => patroni?.kill();
  return {
    ...{ name, port, restPort, link, ask, killPatroni },
    async start(): Promise<void> {
      const command = { command: programOf('patroni')!, args: [file], cwd: folder, log: join(folder, 'log') };
      const server = await launch({ ...command, ...account.ids }, 'postgres-failed');
      patroni = server;
      await untilServes(server, 'Patroni', START_MS, async () => (await ask('liveness'))?.ok === true);
    },
    isLeader: async (): Promise<boolean> => (await ask('leader'))?.ok === true,
    members: async (): Promise<readonly Member[]> => {
      const answer = await ask('cluster');
      return answer?.ok ? ((await answer.json()) as { members: Member[] }).members : [];
    },
    /** Patroni first: it would start Postgres again. */
    async kill(): Promise<void> {
      await killPatroni();
      killPostmaster(data);
    },
  };
}

/** Patroni's Postgres is not its child. Its working directory is its data. */
function killPostmaster(data: string): void {
  try {
    const pid = Number.parseInt(readFileSync(join(data, 'postmaster.pid'), 'utf8'), 10);
    if (readlinkSync(`/proc/${pid}/cwd`) === data) process.kill(pid, 'SIGKILL');
  } catch {
    // it has ended
  }
}

interface NodeSettings {
  readonly name: string;
  readonly folder: string;
  readonly bin: string;
  readonly port: number;
  readonly restPort: number;
  readonly etcdPort: number;
}

function settingsOf({ name, folder, bin, port, restPort, etcdPort }: NodeSettings) {
  const parameters = {
    ...{ fsync: 'off', max_connections: 100, shared_buffers: '32MB', unix_socket_directories: '' },
  };
  return {
    ...{ scope: 'stampede', name },
    restapi: { listen: `127.0.0.1:${restPort}`, connect_address: `127.0.0.1:${restPort}` },
    etcd3: { proxy: `http://127.0.0.1:${etcdPort}` }, // otherwise it takes the address from etcd, past the link
    bootstrap: {
      dcs: { ...TIMES, synchronous_mode: true, postgresql: { use_pg_rewind: true, parameters } },
      initdb: ['data-checksums', { encoding: 'UTF8' }, { locale: 'C' }],
    },
    postgresql: {
      ...{ listen: `127.0.0.1:${port}`, connect_address: `127.0.0.1:${port}` },
      ...{ data_dir: join(folder, 'data'), bin_dir: bin, pgpass: join(folder, 'pgpass') },
      pg_hba: ['host all all 127.0.0.1/32 md5', 'host replication all 127.0.0.1/32 md5'],
      basebackup: [{ checkpoint: 'fast' }],
      authentication: {
        superuser: { username: USER, password: PASSWORD },
        replication: { username: 'replicator', password: PASSWORD },
      },
    },
  };
}

async function startEtcd(parent: string) {
  const [port, peer] = [await freePort(), await freePort()];
  const folder = join(parent, 'etcd');
  await mkdir(folder, { mode: 0o700 });
  const [client, own] = [`http://127.0.0.1:${port}`, `http://127.0.0.1:${peer}`];
  const flags = {
    ...{
      'data-dir': folder,
      'listen-client-urls': client,
      'advertise-client-urls': client,
      'unsafe-no-fsync': 'true',
    },
    ...{ 'listen-peer-urls': own, 'initial-advertise-peer-urls': own, 'initial-cluster': `default=${own}` },
  };
  const args = Object.entries(flags).map(([name, value]) => `--${name}=${value}`);
  const log = join(parent, 'etcd.log');
  const server = await launch({ command: programOf('etcd')!, args, cwd: folder, log }, 'postgres-failed');
  await untilServes(server, 'etcd', START_MS, () => answers(`${client}/health`));
  return { server, port };
}

async function startHaProxy(parent: string, nodes: readonly Node[]) {
  const port = await freePort();
  const servers = nodes.map(
    ({ name, port, restPort }) => `  server ${name} 127.0.0.1:${port} check port ${restPort}\n`,
  );
  const file = join(parent, 'haproxy.cfg');
  await writeFile(
    file,
    `defaults
  mode tcp
  timeout connect 2s
  timeout client 1h
  timeout server 1h
  timeout check 2s
listen primary
  bind 127.0.0.1:${port}
  option httpchk OPTIONS /primary
  http-check expect status 200
  default-server inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions
${servers.join('')}`,
  );
  const log = join(parent, 'haproxy.log');
  const server = await launch(
    { command: programOf('haproxy')!, args: ['-db', '-f', file], cwd: parent, log },
    'postgres-failed',
  );
  return { server, port };
}

const answers = (url: string): Promise<boolean> =>
  fetch(url).then(
    ({ ok }) => ok,
    () => false,
  );

async function leadersOf(nodes: readonly Node[]): Promise<Node[]> {
  const are = await Promise.all(nodes.map((node) => node.isLeader()));
  return nodes.filter((_node, n) => are[n]);
}

const isWritable = (url: string): Promise<boolean> =>
  withPostgres(url, (client) => client.query('SELECT pg_is_in_recovery() AS "isStandby"')).then(
    ({ rows }) => !rows[0].isStandby,
    () => false,
  );
