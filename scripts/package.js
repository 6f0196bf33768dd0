/**
 * `npm run package:locks`, `npm run package:client`: builds a package of a folder of src in dist/stampede-<folder>: the files that its
 * entries reach, the scripts of lua/ that these load, and its README, which is a page of docs. `npm pack ./dist/stampede-locks` packs it.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';

process.chdir(path.resolve(import.meta.dirname, '..'));

const packages = {
  locks: {
    entries: { '.': 'dist/locks/index', './fencing': 'dist/locks/fencing' },
    page: 'docs/how-to/use-the-locks.md',
    lua: ['lock', 'lib'],
    description:
      'Distributed locks on Redis, Postgres and ZooKeeper: renewed, fenced, notified, with a signal before a lease can expire',
    keywords: [
      'distributed lock',
      'mutex',
      'lease',
      'redlock',
      'fencing token',
      'redis',
      'postgres',
      'zookeeper',
    ],
    peers: { ioredis: '>=5', redis: '>=5', pg: '>=8', 'node-zookeeper-client': '>=1.1' },
  },
  client: {
    entries: { '.': 'dist/client/index' },
    page: 'docs/how-to/integrate.md',
    lua: [],
    description:
      'Calls Stampede, a flash-sale and inventory service: typed answers, repeats until there is one, webhooks signed and verified',
    keywords: ['flash sale', 'inventory', 'retry', 'idempotency', 'standard webhooks'],
    peers: {},
  },
};
const folder = process.argv[2] ?? '';
if (!Object.hasOwn(packages, folder)) {
  console.error(`usage: node scripts/package.js ${Object.keys(packages).join('|')}`);
  process.exit(1);
}
const { entries, page, lua, description, keywords, peers } = packages[/** @type {'locks'} */ (folder)];
const out = `dist/stampede-${folder}`;
const { version, license, engines } = JSON.parse(readFileSync('package.json', 'utf8'));

rmSync(out, { recursive: true, force: true });
execFileSync('npx', ['tsc', '-p', 'tsconfig.packages.json', '--outDir', `${out}/dist`], { stdio: 'inherit' });
for (const other of readdirSync(`${out}/dist`))
  if (other !== folder) rmSync(`${out}/dist/${other}`, { recursive: true });
keepTypesOf(Object.values(entries).map((entry) => `${entry}.d.ts`));
const filter = (/** @type {string} */ file) => !file.endsWith('units.lua');
for (const part of lua) cpSync(`lua/${part}`, `${out}/lua/${part}`, { recursive: true, filter });
cpSync('LICENSE', `${out}/LICENSE`);
writeFileSync(`${out}/README.md`, readme());
writeFileSync(`${out}/package.json`, `${JSON.stringify(manifest(), null, 2)}\n`);
console.log(`Built @stampede/${folder} ${version} in ${out}.`);

/**
 * Deletes the types that no entry reaches: they name the types of clients that a caller may not have.
 * @param {string[]} files
 */
function keepTypesOf(files) {
  const kept = new Set(files);
  for (const file of kept) {
    // TypeScript rewrites the extensions of imports in scripts only.
    const text = readFileSync(`${out}/${file}`, 'utf8').replace(/( from '\..*)\.ts';$/gm, "$1.js';");
    writeFileSync(`${out}/${file}`, text);
    for (const [, name] of text.matchAll(/ from '(\..*)\.js';$/gm))
      kept.add(path.join(path.dirname(file), `${name}.d.ts`));
  }
  for (const file of readdirSync(out, { recursive: true, encoding: 'utf8' }))
    if (file.endsWith('.d.ts') && !kept.has(file)) rmSync(`${out}/${file}`);
}

/** Links to other pages of the repository become text. */
function readme() {
  return readFileSync(page, 'utf8').replace(/\[([^\]]+)\]\((?!https?:|#)[^)]*\)/g, '$1');
}

function manifest() {
  return {
    name: `@stampede/${folder}`,
    version,
    description,
    keywords,
    license,
    type: 'module',
    engines,
    sideEffects: false,
    exports: Object.fromEntries(
      Object.entries(entries).map(([name, file]) => [
        name,
        { types: `./${file}.d.ts`, default: `./${file}.js` },
      ]),
    ),
    peerDependencies: peers,
    peerDependenciesMeta: Object.fromEntries(Object.keys(peers).map((name) => [name, { optional: true }])),
  };
}
