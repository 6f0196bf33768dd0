/**
 * Getting a Redis onto a machine that has none: with the system's package manager where that needs no
 * question (root on Debian and Ubuntu, Homebrew), else by telling the exact command.
 *
 * The installation runs in a session of its own and logs to a file: Ctrl-C, or the death of this process,
 * must not leave a half-configured package behind. Several processes that find no Redis at once take turns,
 * and the later ones find it installed.
 */
import { readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LocalStoreError } from './errors.ts';
import { lockFolder } from './folder-lock.ts';
import { identify } from './processes.ts';
import { findProgram, findRedisServer, type RedisLookup, type RedisProgram } from './redis-binary.ts';
import { launch } from './server-process.ts';

const INSTALL_TIMEOUT_MS = 10 * 60_000;

/**
 * Debian's package starts a service on 6379 and enables it at boot, and nobody asked for that: a policy that
 * lives only as long as this script forbids the start, and systemd's enabling is undone. A policy that was
 * there before is left alone, unless it is ours, left by a script that was killed.
 */
const APT_SCRIPT = `
export DEBIAN_FRONTEND=noninteractive
policy=/usr/sbin/policy-rc.d
mark='# made by stampede while it installs redis-server'
if [ ! -e "$policy" ] || grep -qxF "$mark" "$policy"; then
  trap 'rm -f "$policy"' EXIT
  trap 'exit 1' HUP INT TERM
  printf '#!/bin/sh\\n%s\\nexit 101\\n' "$mark" > "$policy"
  chmod 755 "$policy"
fi
install() {
  apt-get -o DPkg::Lock::Timeout=120 install -y --no-install-recommends redis-server
}
install || { apt-get -o DPkg::Lock::Timeout=120 update && install; } || exit 1
if [ -d /run/systemd/system ]; then systemctl disable redis-server || true; fi
`;

interface RedisInstallOptions extends RedisLookup {
  readonly platform?: NodeJS.Platform;
  readonly uid?: number;
  /** The text of /etc/os-release. */
  readonly osRelease?: string;
  readonly say?: (line: string) => void;
}

interface InstallPlan {
  /** What a person would type. */
  readonly command: string;
  /** What we run without asking; null when it takes a person. */
  readonly automatic: { readonly tool: string; readonly line: readonly string[] } | null;
}

/** The manual command for each family, by the words of ID and ID_LIKE in os-release. */
const LINUX_COMMANDS: readonly (readonly [RegExp, string])[] = [
  [/\b(debian|ubuntu)\b/, 'apt-get install redis-server'],
  [/\b(fedora|rhel|centos)\b/, 'dnf install redis || sudo dnf install valkey'],
  [/\balpine\b/, 'apk add redis'],
  [/\b(arch|archlinux)\b/, 'pacman -S valkey'],
  [/\bsuse\b/, 'zypper install redis'],
];

function readOsRelease(): string {
  try {
    return readFileSync('/etc/os-release', 'utf8');
  } catch {
    return '';
  }
}

/** What to do on this system. */
function planInstall(options: RedisInstallOptions): InstallPlan | null {
  const platform = options.platform ?? process.platform;
  if (platform === 'darwin') {
    const brew = findProgram('brew', options);
    const command = 'brew install redis';
    if (brew === null) return { command, automatic: null };
    return { command, automatic: { tool: 'Homebrew', line: [brew, 'install', 'redis'] } };
  }
  if (platform !== 'linux') return null;
  const families = (options.osRelease ?? readOsRelease())
    .split('\n')
    .filter((line) => /^ID(_LIKE)?=/.test(line))
    .join(' ')
    .toLowerCase();
  const command = LINUX_COMMANDS.find(([family]) => family.test(families.replaceAll(/[="]/g, ' ')))?.[1];
  if (command === undefined) return null;
  const isRoot = (options.uid ?? process.getuid?.()) === 0;
  const apt = command.startsWith('apt-get') ? findProgram('apt-get', options) : null;
  return {
    command: `sudo ${command}`,
    automatic:
      isRoot && apt !== null ? { tool: 'apt-get', line: ['/bin/sh', '-c', APT_SCRIPT, 'install'] } : null,
  };
}

function missing(plan: InstallPlan | null): LocalStoreError {
  const install =
    plan === null
      ? "Install Redis 6.2 or later (or Valkey) with your system's package manager"
      : `Install it with: ${plan.command}`;
  return new LocalStoreError(
    'redis-missing',
    `No redis-server or valkey-server on this machine. ${install}\nOr set REDIS_URL to a Redis of yours.`,
  );
}

async function runInstall(line: readonly string[]): Promise<void> {
  const [command, ...args] = line;
  const log = join(tmpdir(), `stampede-redis-install-${process.getuid?.() ?? 'user'}.log`);
  const child = await launch(
    { command: command as string, args, cwd: '/', log, inherit: true, detached: true },
    'redis-install-failed',
  );
  const timer = setTimeout(() => void child.stop('SIGTERM', 10_000), INSTALL_TIMEOUT_MS);
  const end = await child.ended;
  clearTimeout(timer);
  if (end === 'exit code 0') return;
  throw new LocalStoreError('redis-install-failed', `(${end}), log in ${log}:\n${child.tail()}`);
}

async function install(plan: InstallPlan, options: RedisInstallOptions): Promise<RedisProgram> {
  const { automatic } = plan;
  if (automatic === null) throw missing(plan);
  const owner = identify(process.pid);
  if (owner === null) throw missing(plan);
  const lock = await lockFolder({
    claims: join(tmpdir(), `stampede-redis-install-${process.getuid?.() ?? 'user'}`),
    owner,
    waitMs: INSTALL_TIMEOUT_MS,
    waitForAll: true,
    refusal: (pid) =>
      `Process ${pid} has been installing Redis for too long. Install it with: ${plan.command}`,
  });
  try {
    const meanwhile = await findRedisServer(options);
    if (meanwhile !== null) return meanwhile;
    options.say?.(`No Redis on this machine: installing it with ${automatic.tool} (this once)`);
    await runInstall(automatic.line);
    const program = await findRedisServer(options);
    if (program === null) throw missing(plan);
    options.say?.(`Installed Redis ${program.version} (${program.path})`);
    return program;
  } catch (cause) {
    if (!(cause instanceof LocalStoreError) || cause.code !== 'redis-install-failed') throw cause;
    throw new LocalStoreError(
      'redis-install-failed',
      `Redis could not be installed ${cause.message}\nInstall it with: ${plan.command}\nOr set REDIS_URL to a Redis of yours.`,
      { cause },
    );
  } finally {
    lock.release();
  }
}

/** A Redis program on this machine, installed now if there is none and that takes no question. */
export async function ensureRedisServer(options: RedisInstallOptions = {}): Promise<RedisProgram> {
  const found = await findRedisServer(options);
  if (found !== null) return found;
  const plan = planInstall(options);
  if (plan === null) throw missing(plan);
  return install(plan, options);
}
