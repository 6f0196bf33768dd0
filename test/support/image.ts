/**
 * The image of the Dockerfile without a Docker engine: its instructions, carried out in temporary folders, and a process in a
 * container of namespaces. The image is its read-only root; it has the image's user and no capability.
 *
 * Node and the system below it are this machine's, not the base image's. An instruction or option that is not known here throws.
 */
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';

/** A stage that was carried out. */
export interface Image {
  /** The files that its instructions wrote, below the root of the file system. */
  readonly root: string;
  workdir: string;
  readonly env: Record<string, string>;
  /** Values of the instructions that take a single value. */
  readonly settings: Record<string, string>;
}

/** Copies what .dockerignore allows: it lists allowed paths (`!path`), and then exceptions (`path`). */
export function copyContext(source: string, folder: string): void {
  const [first, ...patterns] = readFileSync(path.join(source, '.dockerignore'), 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));
  if (first !== '*' || /[*?]/.test(patterns.join())) throw new Error('.dockerignore has an unknown pattern');
  for (const pattern of patterns) {
    const name = pattern.replace('!', '');
    if (name === pattern) rmSync(path.join(folder, name), { recursive: true, force: true });
    else cpSync(path.join(source, name), path.join(folder, name), { recursive: true });
  }
}

/** Builds all stages below `folder`. @returns the last one @throws what a command printed, if it fails */
export function buildImage(dockerfile: string, context: string, folder: string): Image {
  const built = new Map<string, Image>();
  let image!: Image;
  const lines = dockerfile.replaceAll(/^\s*#.*\n/gm, '').replaceAll(/\\\n\s*/g, ' ');
  for (const [, keyword, rest] of lines.matchAll(/^([A-Z]+)\s+(.+)$/gm) as Iterable<string[]>) {
    if (keyword !== 'FROM') {
      carryOut(image, keyword!, rest!, (stage) => (stage === undefined ? context : built.get(stage)!.root));
      continue;
    }
    const [from, , name = 'last'] = rest!.split(' ');
    const base = built.get(from!);
    image = { workdir: '/', env: {}, settings: {}, ...structuredClone(base), root: path.join(folder, name) };
    mkdirSync(image.root);
    if (base !== undefined) cpSync(base.root, image.root, { recursive: true, verbatimSymlinks: true });
    built.set(name, image);
  }
  return image;
}

function carryOut(
  image: Image,
  keyword: string,
  rest: string,
  rootOf: (stage: string | undefined) => string,
): void {
  const absolute = (place: string) => path.join(image.root, path.resolve(image.workdir, place));
  if (keyword === 'WORKDIR') {
    image.workdir = path.resolve(image.workdir, rest);
    mkdirSync(absolute('.'), { recursive: true });
  } else if (keyword === 'ENV') {
    Object.assign(image.env, Object.fromEntries(rest.split(' ').map((pair) => pair.split('='))));
  } else if (/^(LABEL|USER|EXPOSE|STOPSIGNAL|HEALTHCHECK|CMD)$/.test(keyword)) {
    image.settings[keyword] = rest;
  } else if (keyword === 'RUN') {
    const { PATH, HOME } = process.env;
    const env = { PATH, HOME, npm_config_prefer_offline: 'true', ...image.env };
    execFileSync('/bin/sh', ['-c', rest], { cwd: absolute('.'), env, stdio: ['ignore', 'pipe', 'pipe'] });
  } else {
    const [, stage, list] = (keyword === 'COPY' && /^(?:--from=(\S+) )?([^-].*)$/.exec(rest)) || [];
    if (list === undefined) throw new Error(`an instruction that is not known here: ${keyword} ${rest}`);
    const sources = list.split(/\s+/);
    const target = sources.pop()!;
    for (const from of sources.map((source) => path.join(rootOf(stage), source))) {
      // COPY copies the contents of a folder.
      const isInto = target.endsWith('/') && !statSync(from).isDirectory();
      const to = absolute(isInto ? target + path.basename(from) : target);
      cpSync(from, to, { recursive: true, verbatimSymlinks: true });
    }
  }
}

/** Whether a container can be made here: as root, with unshare and setpriv of util-linux. */
export const canContain = () =>
  process.getuid?.() === 0 &&
  spawnSync('unshare', ['--mount', '--pid', '--fork', 'setpriv', '--version']).status === 0;

/** As root, in new namespaces of mounts and processes: makes the root file system, and executes the command in it. */
const ENTER = `set -e
root=$1 image=$2 node=$3 uid=$4 workdir=$5
shift 5
mount --make-rprivate /
mount -t tmpfs -o mode=755 none "$root"
only() { mount --bind "$1" "$2" && mount -o remount,bind,ro "$2"; }
for part in usr bin lib lib64 etc; do
  if [ -L "/$part" ]; then cp -P "/$part" "$root/$part"
  elif [ -d "/$part" ]; then mkdir "$root/$part" && only "/$part" "$root/$part"; fi
done
for part in "$image"/*; do
  mkdir "$root/\${part##*/}" && only "$part" "$root/\${part##*/}"
done
mkdir "$root/proc" "$root/dev" "$root/node"
mount -t proc none "$root/proc"
for device in null urandom; do touch "$root/dev/$device" && mount --bind "/dev/$device" "$root/dev/$device"; done
touch "$root/node/node" && only "$node" "$root/node/node"
mount -o remount,ro "$root"
exec chroot "$root" /usr/bin/env -C "$workdir" /usr/bin/setpriv --reuid "\${uid%:*}" --regid "\${uid#*:}" --clear-groups \\
  --bounding-set=-all --inh-caps=-all --ambient-caps=-all --no-new-privs "$@"`;

/**
 * Starts a process in a container. The file system is read-only, without even a /tmp. The process has the image's user and
 * environment, no capability, and this machine's network.
 *
 * @param mountPoint an empty folder
 */
export function startContainer(
  { root, workdir, settings, env }: Image,
  mountPoint: string,
  command: readonly string[],
  more: Readonly<Record<string, string>>,
): ChildProcess {
  const args = [mountPoint, root, process.execPath, settings.USER ?? '0:0', workdir];
  const inside = ['/bin/sh', '-c', ENTER, 'enter', ...args, ...command];
  return spawn('unshare', ['--mount', '--pid', '--fork', '--kill-child', ...inside], {
    env: { PATH: '/node:/usr/sbin:/usr/bin:/sbin:/bin', ...env, ...more },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

/** All files below a folder, relative to it. */
export const filesBelow = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)));
