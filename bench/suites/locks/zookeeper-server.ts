/** A ZooKeeper of the bench's own, on the loopback, with the settings that it ships with. */
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { findProgram } from '../../../src/local/redis-binary.ts';
import { freePort, launch } from '../../../src/local/server-process.ts';

/** Where Debian's package puts its libraries; the manifest of the first one names what it needs. */
const JARS = ['/usr/share/java/zookeeper.jar', '/usr/share/java/slf4j-simple.jar'];
const START_MS = 60_000;
const ASK_MS = 2_000;

export interface ZookeeperServer {
  readonly url: string;
  readonly version: string;
  /** Packets that clients sent since it started. */
  packets(): Promise<number>;
  kill(): Promise<void>;
}

/** @returns null when it can be started, or how to get it */
export function whyNoZookeeper(): string | null {
  if (existsSync(JARS[0]!) && findProgram('java') !== null) return null;
  return 'no ZooKeeper on this machine: apt-get install zookeeper default-jre-headless (Debian, Ubuntu)';
}

/** Starts a server on an empty folder and waits until it serves. */
export async function startZookeeper(folder: string): Promise<ZookeeperServer> {
  const port = await freePort();
  const data = join(folder, 'data');
  await mkdir(data, { recursive: true });
  const settings = {
    dataDir: data,
    clientPort: port,
    clientPortAddress: '127.0.0.1',
    tickTime: 2_000,
    maxClientCnxns: 0,
    'admin.enableServer': false,
    '4lw.commands.whitelist': 'srvr,mntr',
  };
  const file = join(folder, 'zoo.cfg');
  const lines = Object.entries(settings).map(([name, value]) => `${name}=${value}\n`);
  await writeFile(file, lines.join(''));
  const main = 'org.apache.zookeeper.server.quorum.QuorumPeerMain';
  const args = ['-Xmx256m', '-cp', JARS.join(':'), main, file];
  const log = join(folder, 'zookeeper.log');
  const server = await launch({ command: 'java', args, cwd: folder, log }, 'redis-failed');
  const untilMs = performance.now() + START_MS;
  let status = '';
  while (!status.includes('Mode:')) {
    if (server.end() !== null || performance.now() > untilMs) {
      await server.kill();
      throw new Error(`ZooKeeper did not start (${server.end()}):\n${server.tail()}`);
    }
    await sleep(50);
    status = await ask(port, 'srvr');
  }
  return {
    url: `127.0.0.1:${port}`,
    version: /version: ([\d.]+)/.exec(status)?.[1] ?? 'unknown',
    async packets() {
      return Number(/^zk_packets_received\s+(\d+)/m.exec(await ask(port, 'mntr'))?.[1] ?? Number.NaN);
    },
    kill: server.kill,
  };
}

/** A four-letter command's answer, or what had come of it in time. */
function ask(port: number, word: string): Promise<string> {
  return new Promise((resolve) => {
    let answer = '';
    const socket = connect({ host: '127.0.0.1', port }, () => socket.write(word));
    const finish = () => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(ASK_MS, finish);
    socket.on('data', (chunk) => {
      answer += chunk.toString();
    });
    socket.on('error', finish);
    socket.on('close', finish);
  });
}
