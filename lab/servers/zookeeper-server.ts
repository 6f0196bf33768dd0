/** One ZooKeeper, from Debian's package. */
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { freePort, launch, type ServerProcess } from '../../src/local/server-process.ts';
import { findProgram } from '../kit/processes.ts';
import { untilServes } from './until-serves.ts';

/** Where Debian's package puts its libraries; the manifest of the first one names what it needs. */
const jars = ['/usr/share/java/zookeeper.jar', '/usr/share/java/slf4j-simple.jar'];
const zookeeperMs = 60_000;
const askMs = 2_000;

/** @returns null when it can be started, or how to install it */
export function whyNoZookeeper(): string | null {
  if (existsSync(jars[0]!) && findProgram('java') !== null) return null;
  return 'no ZooKeeper on this machine: apt-get install zookeeper default-jre-headless (Debian, Ubuntu)';
}

export type ZookeeperServer = Awaited<ReturnType<typeof startZookeeper>>;

/**
 * Starts ZooKeeper in an empty folder, on the loopback, and waits until it serves.
 * @param changes to the default settings
 * @param java further arguments of the virtual machine
 * @param environment additions to that of the server
 */
export async function startZookeeper(
  folder: string,
  changes: Readonly<Record<string, string | number>> = {},
  java: readonly string[] = [],
  environment: Readonly<Record<string, string>> = {},
) {
  const port = await freePort();
  const dataDir = join(folder, 'data');
  await mkdir(dataDir, { recursive: true });
  const place = { dataDir, clientPort: port, clientPortAddress: '127.0.0.1' };
  const access = { maxClientCnxns: 0, 'admin.enableServer': false, '4lw.commands.whitelist': '*' };
  const file = join(folder, 'zoo.cfg');
  const settings = Object.entries({ ...place, ...access, tickTime: 2_000, ...changes });
  await writeFile(file, settings.map(([name, value]) => `${name}=${value}\n`).join(''));
  const main = 'org.apache.zookeeper.server.quorum.QuorumPeerMain';
  const args = ['-Xmx256m', ...java, '-cp', jars.join(':'), main, file];
  const log = join(folder, 'zookeeper.log');
  let server: ServerProcess;
  const start = async (): Promise<void> => {
    server = await launch({ command: 'java', args, cwd: folder, log, environment }, 'redis-failed');
    await untilServes(server, 'ZooKeeper', zookeeperMs, async () =>
      (await ask(port, 'srvr')).includes('Mode:'),
    );
  };
  await start();
  return {
    ...{ url: `127.0.0.1:${port}`, port, data: dataDir },
    /** Restarts a killed server on its port and data. */
    start,
    get pid() {
      return server.pid;
    },
    /** The reply to a four-letter command, as much of it as came in time. */
    ask: (word: string) => ask(port, word),
    /** SIGKILL; the data stays for `start`. */
    kill: () => server.kill(),
  };
}

function ask(port: number, word: string): Promise<string> {
  return new Promise((resolve) => {
    let answer = '';
    const socket = connect({ host: '127.0.0.1', port }, () => socket.write(word));
    const finish = () => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(askMs, finish);
    socket.on('data', (chunk) => {
      answer += chunk.toString();
    });
    socket.on('error', finish);
    socket.on('close', finish);
  });
}
