/** A real ZooKeeper on the loopback, from Debian's package, with a tick time that allows short sessions. */
import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { freePort, launch, type ServerProcess } from '../../src/local/server-process.ts';

/** The package's library folder. */
const JARS = '/usr/share/java';
const START_MS = 60_000;

export interface ZookeeperServer extends AsyncDisposable {
  readonly url: string;
  readonly port: number;
  readonly pid: number;
  /** The reply to a four-letter command, or '' after a timeout. */
  ask(word: string): Promise<string>;
  /** SIGSTOP. */
  pause(): void;
  /** SIGCONT. */
  resume(): void;
  /** SIGKILL; the data stays for `start`. */
  kill(): Promise<void>;
  /** Restarts a killed server on its port and data. */
  start(): Promise<void>;
}

const isThere = () => existsSync(`${JARS}/zookeeper.jar`);

/** Installs ZooKeeper if that needs no confirmation. @returns null, or why it is missing and what to do */
export async function ensureZookeeper(): Promise<string | null> {
  if (isThere()) return null;
  const hint = 'no ZooKeeper on this machine: apt-get install zookeeper (Debian, Ubuntu)';
  const debian = /^ID(_LIKE)?=.*(debian|ubuntu)/m.test(readText('/etc/os-release'));
  if (!debian || process.getuid?.() !== 0) return hint;
  const install =
    'apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends zookeeper default-jre-headless';
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const script = `${install} || { apt-get update && ${install}; }`;
  await promisify(execFile)('/bin/sh', ['-c', script], { env, timeout: 600_000 }).catch(() => {});
  return isThere() ? null : hint;
}

function readText(file: string): string {
  return existsSync(file) ? readFileSync(file, 'utf8') : '';
}

/** Starts a server with an empty folder and waits until it replies. */
export async function startZookeeper({ tickMs = 200 } = {}): Promise<ZookeeperServer> {
  const folder = await mkdtemp(path.join(tmpdir(), 'stampede-test-zookeeper-'));
  const port = await freePort();
  await mkdir(path.join(folder, 'data'));
  const settings = {
    dataDir: path.join(folder, 'data'),
    clientPort: port,
    clientPortAddress: '127.0.0.1',
    tickTime: tickMs,
    minSessionTimeout: 2 * tickMs,
    maxSessionTimeout: 60_000,
    maxClientCnxns: 0,
    forceSync: 'no',
    'admin.enableServer': false,
    '4lw.commands.whitelist': '*',
  };
  const file = path.join(folder, 'zoo.cfg');
  await writeFile(
    file,
    Object.entries(settings)
      .map(([key, value]) => `${key}=${value}\n`)
      .join(''),
  );
  const args = ['-Xmx128m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-Dzookeeper.forceSync=no'];
  const main = 'org.apache.zookeeper.server.quorum.QuorumPeerMain';
  const options = {
    command: 'java',
    args: [...args, '-cp', CLASSES.map((jar) => `${JARS}/${jar}.jar`).join(':'), main, file],
    cwd: folder,
    log: path.join(folder, 'zookeeper.log'),
  };
  let server: ServerProcess;
  async function start(): Promise<void> {
    server = await launch(options, 'redis-failed');
    const untilMs = performance.now() + START_MS;
    while (
      !(await fourLetters(port, 'ruok')).includes('imok') ||
      !(await fourLetters(port, 'srvr')).includes('Mode')
    ) {
      if (server.end() !== null || performance.now() > untilMs) {
        await server.kill();
        throw new Error(`ZooKeeper did not start (${server.end()}):\n${server.tail()}`);
      }
      await sleep(50);
    }
  }
  await start();
  return {
    url: `127.0.0.1:${port}`,
    port,
    get pid() {
      return server.pid;
    },
    ask: (word) => fourLetters(port, word),
    pause: () => void process.kill(server.pid, 'SIGSTOP'),
    resume: () => void process.kill(server.pid, 'SIGCONT'),
    kill: () => server.kill(),
    start,
    async [Symbol.asyncDispose]() {
      await server.kill();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** The manifest of the first one names its dependencies. */
const CLASSES = ['zookeeper', 'slf4j-simple'];

function fourLetters(port: number, word: string): Promise<string> {
  return new Promise((resolve) => {
    let answer = '';
    const socket = connect({ host: '127.0.0.1', port }, () => socket.write(word));
    const finish = () => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(1_000, finish);
    socket.on('data', (chunk) => {
      answer += chunk.toString();
    });
    socket.on('error', finish);
    socket.on('close', finish);
  });
}
