/**
 * `npm run build`: bundles the programs and the pages into dist/, when a source has changed since the last build.
 *
 *   dist/commands/   the service, and what npm scripts run beside it       dist/programs/   children that these start
 *   dist/chunks/     what several of them share, or load on demand         dist/web/        scripts and styles of pages, also compressed
 *
 * All of it is JavaScript from TypeScript; `npm run check` checks types. In a bundle `import.meta.url` of a module is still the URL of its
 * source, so a path relative to it means the same everywhere.
 */
import {
  accessSync,
  constants,
  existsSync,
  lchownSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { brotliCompressSync, gzipSync, constants as zlib } from 'node:zlib';

const root = path.resolve(import.meta.dirname, '..');
const dist = path.join(root, 'dist');
/** What the last build read and wrote. */
const record = path.join(dist, '.build.json');
const DAY_MS = 86_400_000;
/** An installation changes it; so does `npm prune`, after which nothing can be built. */
const LOCK = 'node_modules/.package-lock.json';

/** Entries by their place in dist/. Those that the image of the service lacks are skipped. */
const service = {
  'commands/start': 'src/commands/start.ts',
  'commands/audit': 'src/commands/audit.ts',
  'commands/check-server': 'src/commands/check-server.ts',
  'commands/migrate': 'src/commands/migrate.ts',
  'commands/reconcile': 'src/commands/reconcile.ts',
};
const laboratory = {
  'commands/bench': 'bench/main.ts',
  'commands/race': 'bench/race/main.ts',
  'commands/explore': 'lab/explore/main.ts',
  'programs/award-client': 'bench/suites/points/award-client.ts',
  'programs/autocannon-worker': 'bench/load/autocannon-worker.ts',
  'programs/explorer': 'lab/explore/explorer.ts',
  'programs/bare-server': 'bench/suites/limits/bare-server.ts',
  'programs/lock-client': 'lab/clients/lock-client.ts',
  'programs/proxy-process': 'lab/proxy-process.ts',
  'programs/shop': 'examples/shop/shop.ts',
  'programs/service-under-lock': 'bench/suites/tasks/service-under-lock.ts',
};
const pages = {
  'web/style': 'src/web/style.css',
  'web/icon': 'src/web/icon.svg',
  'web/shop': 'src/web/shop/main.tsx',
  'web/proof-worker': 'src/web/shop/proof-worker.ts',
  'web/console': 'src/web/console/main.tsx',
  'web/docs': 'src/web/docs.ts',
  'web/race': 'bench/race/page/main.tsx',
};

/** Packages of the service that are not bundled. */
const external = [
  '@prisma/client/runtime/query_compiler*', // 4 MB of WebAssembly as text, loaded by the first query through Prisma
  '@opentelemetry/*', // loaded with OTEL_EXPORTER_OTLP_ENDPOINT only
  'node-zookeeper-client', // loaded with LOCK=zookeeper only
  'pino-pretty', // loaded on a terminal only
  'pg-native', // optional, and not installed
];

const programs = {
  platform: 'node',
  target: 'node20',
  splitting: true,
  chunkNames: 'chunks/[name]-[hash]',
  sourcemap: true,
  sourcesContent: false,
  plugins: [{ name: 'source-urls', setup: giveSourceUrls }],
  // For CommonJS packages in an ES module.
  banner: {
    js: "import { createRequire as requireOf } from 'node:module'; const require = requireOf(import.meta.url);",
  },
};
const page = {
  minify: true,
  target: ['es2022', 'chrome109', 'firefox115', 'safari16.4'],
  jsx: 'automatic',
  jsxImportSource: 'preact',
  loader: { '.svg': 'copy' },
};
const parts = {
  service: { entries: service, options: { ...programs, external } },
  // In a checkout alone, which has all packages.
  laboratory: { entries: laboratory, options: { ...programs, packages: 'external' } },
  pages: { entries: pages, options: page },
};

/** A tenth larger than at the highest quality, in a twentieth of the time. */
const FAST = { params: { [zlib.BROTLI_PARAM_QUALITY]: 9 } };

/** @param {string} message */
function refuse(message) {
  process.stderr.write(`${message}\n`);
  process.exit(1);
}

function refuseOldNode() {
  const { engines } = JSON.parse(readFileSync(path.join(root, 'package.json'), 'utf8'));
  const [major, minor] = process.versions.node.split('.').map(Number);
  const [wantedMajor, wantedMinor] = (/(\d+)\.(\d+)/.exec(engines.node) ?? []).slice(1).map(Number);
  if (major > wantedMajor || (major === wantedMajor && minor >= wantedMinor)) return;
  refuse(`Node.js ${process.versions.node} is too old: Stampede needs ${engines.node}.`);
}

/** A file's identity: changed content has another. A missing file, and one that changed later than `beforeMs`, has none. */
function versionOf(file, beforeMs = Number.POSITIVE_INFINITY) {
  const stat = statSync(path.join(root, file), { throwIfNoEntry: false });
  return stat === undefined || stat.mtimeMs > beforeMs ? null : `${stat.mtimeMs} ${stat.size}`;
}

/** Whether nothing that the last build of a part read has changed, except `ignored`, and all that it wrote is there. */
function isCurrent({ read = {}, written = [] } = {}, ignored = '') {
  return (
    written.length > 0 &&
    Object.entries(read).every(([file, version]) => file === ignored || versionOf(file) === version) &&
    written.every((file) => existsSync(path.join(dist, file)))
  );
}

async function loadEsbuild() {
  try {
    return { esbuild: await import('esbuild') };
  } catch {
    const start = '`node --enable-source-maps --max-semi-space-size=64 dist/commands/start.js`';
    const reason = `esbuild is a development dependency, which is not installed here. Start the built service with ${start}, other built programs of dist/commands likewise, or run \`npm ci\` to build.`;
    return { esbuild: null, reason };
  }
}

/** Makes dist/, or explains why this user cannot write what is in it. */
function prepareFolder() {
  try {
    if (!existsSync(dist)) mkdirSync(dist); // "recursive" would report ENOENT for a read-only file system
    for (const file of ['', ...filesOfDist()]) accessSync(path.join(dist, file), constants.W_OK);
  } catch (error) {
    if (error.code === 'EEXIST') return prepareFolder(); // another build has just made it
    const owner = `${process.getuid?.() ?? '$UID'}:${process.getgid?.() ?? '$GID'}`;
    const denied = existsSync(dist) ? dist : root;
    const copy = 'copy the project to a folder of your own and run it there';
    const advice = {
      EROFS: `The file system is read-only: ${copy}`,
      ENOSPC: 'The disk is full: free some space',
      EDQUOT: 'The quota of this user is used up: free some space',
    };
    refuse(
      `This user cannot write the built service to ${denied} (${error.code}). ` +
        `${advice[error.code] ?? `Change the owner with sudo chown -R ${owner} '${denied}', or ${copy}`}.`,
    );
  }
}

/** Without what another build is writing: see `replace`. */
function filesOfDist() {
  return readdirSync(dist, { recursive: true, encoding: 'utf8' }).filter((file) => !/\.\d+$/.test(file));
}

/** @returns the versions of what it read, and the names of what it wrote */
async function buildPart({ build }, { entries, options }) {
  const startedMs = Date.now();
  const present = Object.entries(entries).filter(([, file]) => existsSync(path.join(root, file)));
  const { metafile, outputFiles } = await build({
    ...options,
    bundle: true,
    format: 'esm',
    absWorkingDir: root,
    entryPoints: Object.fromEntries(present),
    outdir: 'dist',
    write: false,
    metafile: true,
    legalComments: 'none',
    tsconfigRaw: {},
    logLevel: 'warning',
    logOverride: { 'ignored-bare-import': 'silent' }, // imports of types
  }).catch(() => process.exit(1)); // it has said why
  const files = outputFiles.flatMap(withCompressed);
  const isChunk = ({ name }) => name.startsWith('chunks/');
  // Chunks first: a program that starts meanwhile finds those that it loads.
  for (const { name, contents } of files.toSorted((a, b) => isChunk(b) - isChunk(a))) replace(name, contents);
  const own = Object.keys(metafile.inputs).filter((file) => !file.includes('node_modules/'));
  const inputs = ['scripts/build.js', LOCK, ...own];
  return {
    // One that changed meanwhile may not have been read as it is now.
    read: Object.fromEntries(inputs.map((file) => [file, versionOf(file, startedMs)])),
    written: files.map(({ name }) => name),
  };
}

/** Gives each module the URL of its source. */
function giveSourceUrls({ onLoad }) {
  onLoad({ filter: /\.ts$/ }, ({ path: file }) => {
    const text = readFileSync(file, 'utf8');
    if (file.includes('node_modules') || !text.includes('import.meta.')) return null;
    // Each program and each chunk is in a folder of dist/.
    const url = `new URL('../../${path.relative(root, file)}', import.meta.url)`;
    const folder = `process.getBuiltinModule('node:url').fileURLToPath(new URL('.', ${url}))`;
    return {
      loader: 'ts',
      contents: text.replaceAll('import.meta.url', `${url}.href`).replaceAll('import.meta.dirname', folder),
    };
  });
}

/** Of a page also its compressed forms: the service compresses nothing at start. */
function withCompressed({ path: file, contents }) {
  const name = path.relative(dist, file);
  if (!name.startsWith('web/')) return [{ name, contents }];
  return [
    { name, contents },
    { name: `${name}.br`, contents: brotliCompressSync(contents, FAST) },
    { name: `${name}.gz`, contents: gzipSync(contents, { level: 9 }) },
  ];
}

/** At once: a program may be starting. */
function replace(name, contents) {
  const file = path.join(dist, name);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(`${file}.${process.pid}`, contents);
  renameSync(`${file}.${process.pid}`, file);
}

/** A running program may still load a chunk of an earlier build. */
function removeOld(written) {
  // Another build may remove it first.
  const isOld = (file) => Date.now() - (statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0) > DAY_MS;
  for (const file of filesOfDist())
    if (file.startsWith('chunks/') && !written.includes(file) && isOld(path.join(dist, file)))
      rmSync(path.join(dist, file), { force: true });
}

/** Built by root in another user's project: that user's next build replaces these files. */
function giveToOwner() {
  const { uid, gid } = statSync(root);
  if (process.getuid?.() !== 0 || uid === 0) return;
  for (const file of ['', ...filesOfDist()]) lchownSync(path.join(dist, file), uid, gid);
}

refuseOldNode();
const built = existsSync(record) ? JSON.parse(readFileSync(record, 'utf8')) : {};
const staleParts = (ignored) => Object.keys(parts).filter((name) => !isCurrent(built[name], ignored));
const stale = staleParts();
const { esbuild, reason } = stale.length > 0 ? await loadEsbuild() : {};
if (esbuild === null && staleParts(LOCK).length > 0) refuse(reason);
if (esbuild) {
  prepareFolder();
  const results = await Promise.all(stale.map((name) => buildPart(esbuild, parts[name])));
  for (const [n, name] of stale.entries()) built[name] = results[n];
  removeOld(Object.values(built).flatMap(({ written }) => written));
  replace(path.basename(record), JSON.stringify(built));
  giveToOwner();
}
