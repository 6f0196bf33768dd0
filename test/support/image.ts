/**
 * The image of the Dockerfile without a Docker engine: its instructions, carried out in temporary folders, and a process in a
 * container of namespaces. The image is its read-only root; it has the image's user and no capability.
 *
 * Node and the system below it are this machine's, not the base image's. An instruction or option that is not known here throws.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';

export interface Stage {
  readonly name: string | undefined;
  /** An image, or the name of an earlier stage. */
  readonly from: string;
  readonly instructions: readonly (readonly [keyword: string, rest: string])[];
}

/** A stage that was carried out. */
export interface Image {
  /** The files that its instructions wrote, below the root of the file system. */
  readonly root: string;
  readonly workdir: string;
  readonly env: Readonly<Record<string, string>>;
  readonly labels: Readonly<Record<string, string>>;
  /** Values of the instructions that take a single value. */
  readonly settings: Readonly<Record<string, string>>;
}

export function parseDockerfile(text: string): Stage[] {
  const lines = text
    .replaceAll(/^\s*#.*\n/gm, '')
    .replaceAll(/\\\n\s*/g, ' ')
    .split('\n');
  const stages: (Omit<Stage, 'instructions'> & { instructions: [string, string][] })[] = [];
  for (const line of lines.filter((one) => one.trim() !== '')) {
    const [, keyword, rest] = /^([A-Z]+)\s+(.+)$/.exec(line) as unknown as [string, string, string];
    const from = /^(\S+)(?: AS (\S+))?$/.exec(rest);
    if (keyword === 'FROM') stages.push({ from: from![1]!, name: from![2], instructions: [] });
    else stages.at(-1)!.instructions.push([keyword, rest]);
  }
  return stages;
}

/** Copies what .dockerignore allows: it lists allowed paths (`!path`), and then exceptions (`path`). */
export function copyContext(source: string, folder: string): void {
  const [first, ...patterns] = readFileSync(path.join(source, '.dockerignore'), 'utf8')
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'));
  if (first !== '*') throw new Error('.dockerignore does not begin with *');
  for (const pattern of patterns) {
    if (/[*?]/.test(pattern)) throw new Error(`a pattern that is not known here: ${pattern}`);
    if (!pattern.startsWith('!')) rmSync(path.join(folder, pattern), { recursive: true, force: true });
    else
      cpSync(path.join(source, pattern.slice(1)), path.join(folder, pattern.slice(1)), { recursive: true });
  }
}

const pairs = (rest: string) =>
  Object.fromEntries(
    [...rest.matchAll(/([\w.]+)=(?:"([^"]*)"|(\S+))/g)].map(([, name, quoted, plain]) => [
      name!,
      quoted ?? plain!,
    ]),
  );

/** Builds all stages below `folder`. @returns the last one @throws what a command printed, if it fails */
export function buildImage(stages: readonly Stage[], context: string, folder: string): Image {
  const built = new Map<string, Image>();
  let last: Image | undefined;
  for (const [index, { name, from, instructions }] of stages.entries()) {
    const root = path.join(folder, name ?? `stage-${index}`);
    const base = built.get(from);
    mkdirSync(root);
    if (base !== undefined) cpSync(base.root, root, { recursive: true, verbatimSymlinks: true });
    let image: Image = { workdir: '/', env: {}, labels: {}, settings: {}, ...base, root };
    for (const [keyword, rest] of instructions) image = carryOut(image, keyword, rest, context, built);
    if (name !== undefined) built.set(name, image);
    last = image;
  }
  return last!;
}

function carryOut(
  image: Image,
  keyword: string,
  rest: string,
  context: string,
  built: ReadonlyMap<string, Image>,
): Image {
  const absolute = (place: string) => path.join(image.root, path.resolve(image.workdir, place));
  switch (keyword) {
    case 'WORKDIR':
      mkdirSync(absolute(rest), { recursive: true });
      return { ...image, workdir: path.resolve(image.workdir, rest) };
    case 'ENV':
      return { ...image, env: { ...image.env, ...pairs(rest) } };
    case 'LABEL':
      return { ...image, labels: { ...image.labels, ...pairs(rest) } };
    case 'USER':
    case 'EXPOSE':
    case 'STOPSIGNAL':
    case 'HEALTHCHECK':
    case 'CMD':
      return { ...image, settings: { ...image.settings, [keyword]: rest } };
    case 'RUN': {
      const { PATH, HOME } = process.env;
      execFileSync('/bin/sh', ['-c', rest], {
        cwd: absolute('.'),
        env: { PATH, HOME, npm_config_prefer_offline: 'true', ...image.env },
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      return image;
    }
    case 'COPY':
      copy(rest, context, built, absolute);
      return image;
    default:
      throw new Error(`an instruction that is not known here: ${keyword} ${rest}`);
  }
}

function copy(
  rest: string,
  context: string,
  built: ReadonlyMap<string, Image>,
  absolute: (place: string) => string,
): void {
  const [, stage, list] = /^(?:--from=(\S+) )?([^-].*)$/.exec(rest) ?? [];
  if (list === undefined) throw new Error(`an option that is not known here: COPY ${rest}`);
  const sources = list.split(/\s+/);
  const target = sources.pop()!;
  for (const source of sources) {
    const from = path.join(stage === undefined ? context : built.get(stage)!.root, source);
    // COPY copies the contents of a folder.
    const to = target.endsWith('/') && !statSync(from).isDirectory() ? target + path.basename(from) : target;
    cpSync(from, absolute(to), { recursive: true, verbatimSymlinks: true });
  }
}

/** Why a container cannot be made here; null if it can. */
export function noContainer(): string | null {
  if (process.platform !== 'linux') return 'namespaces need Linux';
  if (process.getuid?.() !== 0) return 'mounting a root file system needs root';
  try {
    execFileSync('unshare', ['--mount', '--pid', '--fork', 'setpriv', '--version'], { stdio: 'ignore' });
    return null;
  } catch {
    return 'unshare and setpriv of util-linux are missing, or may not make namespaces';
  }
}

const PARTS_OF_THE_SYSTEM = ['usr', 'bin', 'lib', 'lib64', 'etc'];

/** As root, in new namespaces of mounts and processes: makes the root file system, and executes the command in it. */
const ENTER = `set -e
root=$1 image=$2 node=$3 uid=$4 workdir=$5
shift 5
mount --make-rprivate /
mount -t tmpfs -o mode=755 none "$root"
only() { mount --bind "$1" "$2" && mount -o remount,bind,ro "$2"; }
for part in ${PARTS_OF_THE_SYSTEM.join(' ')}; do
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
  more: Readonly<Record<string, string>> = {},
): ChildProcess {
  const args = [mountPoint, root, process.execPath, settings.USER ?? '0:0', workdir];
  return spawn(
    'unshare',
    ['--mount', '--pid', '--fork', '--kill-child', '/bin/sh', '-c', ENTER, 'enter', ...args, ...command],
    {
      env: { PATH: '/node:/usr/sbin:/usr/bin:/sbin:/bin', ...env, ...more },
      stdio: ['ignore', 'pipe', 'pipe'],
    },
  );
}

/** The id of a container's first process, as seen from outside. */
export function firstProcessOf(container: ChildProcess): number {
  const children = readFileSync(`/proc/${container.pid}/task/${container.pid}/children`, 'utf8');
  return Number(children.trim().split(' ')[0]);
}

/** All files below a folder, relative to it. */
export const filesBelow = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => path.relative(folder, path.join(entry.parentPath, entry.name)));

/** The packages in a `node_modules`, `name@version`. */
export function packagesIn(folder: string): string[] {
  const manifests = filesBelow(folder).filter((file) =>
    /(^|\/)node_modules\/(@[^/]+\/)?[^/]+\/package\.json$/.test(`node_modules/${file}`),
  );
  return manifests
    .filter((file) => existsSync(path.join(folder, file)))
    .map((file) => {
      const { name, version } = JSON.parse(readFileSync(path.join(folder, file), 'utf8'));
      return `${name}@${version}`;
    });
}
