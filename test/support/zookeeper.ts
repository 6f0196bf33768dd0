/** A real ZooKeeper from Debian's package, with a tick time that allows short sessions. */
import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import {
  type ZookeeperServer as Server,
  startZookeeper as start,
  whyNoZookeeper,
} from '../../lab/servers/zookeeper-server.ts';

export type ZookeeperServer = Server & AsyncDisposable;

/** Installs ZooKeeper if that needs no confirmation. @returns null, or why it is missing and what to do */
export async function ensureZookeeper(): Promise<string | null> {
  const why = whyNoZookeeper();
  const release = '/etc/os-release';
  const debian = existsSync(release) && /^ID(_LIKE)?=.*(debian|ubuntu)/m.test(readFileSync(release, 'utf8'));
  if (why === null || !debian || process.getuid?.() !== 0) return why;
  const install =
    'apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends zookeeper default-jre-headless';
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const script = `${install} || { apt-get update && ${install}; }`;
  await promisify(execFile)('/bin/sh', ['-c', script], { env, timeout: 600_000 }).catch(() => {});
  return whyNoZookeeper();
}

/** Starts a server with an empty folder and waits until it replies. */
export async function startZookeeper({ tickMs = 200 } = {}): Promise<ZookeeperServer> {
  const folder = await mkdtemp(path.join(tmpdir(), 'stampede-test-zookeeper-'));
  const sessions = { minSessionTimeout: 2 * tickMs, maxSessionTimeout: 60_000 };
  const java = ['-Xmx128m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-Dzookeeper.forceSync=no'];
  const server = await start(folder, { tickTime: tickMs, ...sessions, forceSync: 'no' }, java);
  return Object.assign(server, {
    async [Symbol.asyncDispose]() {
      await server.kill();
      await rm(folder, { recursive: true, force: true });
    },
  });
}
