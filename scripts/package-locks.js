/**
 * Builds the package `@stampede/locks` in dist/stampede-locks: the files of src/locks that its two entries reach, the scripts of lua/ that
 * these load, and its README, which is docs/how-to/use-the-locks.md. `npm pack ./dist/stampede-locks` packs it.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';

process.chdir(path.resolve(import.meta.dirname, '..'));
const out = 'dist/stampede-locks';
const entries = { '.': 'dist/locks/index', './fencing': 'dist/locks/fencing' };
const { version, license, engines } = JSON.parse(readFileSync('package.json', 'utf8'));

rmSync(out, { recursive: true, force: true });
execFileSync('npx', ['tsc', '-p', 'tsconfig.locks.json'], { stdio: 'inherit' });
keepTypesOf(Object.values(entries).map((entry) => `${entry}.d.ts`));
cpSync('lua/lock', `${out}/lua/lock`, { recursive: true });
cpSync('lua/lib', `${out}/lua/lib`, { recursive: true, filter: (file) => !file.endsWith('units.lua') });
cpSync('LICENSE', `${out}/LICENSE`);
writeFileSync(`${out}/README.md`, readme());
writeFileSync(`${out}/package.json`, `${JSON.stringify(manifest(), null, 2)}\n`);
console.log(`Built @stampede/locks ${version} in ${out}.`);

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
  const page = readFileSync('docs/how-to/use-the-locks.md', 'utf8');
  return page.replace(/\[([^\]]+)\]\((?!https?:|#)[^)]*\)/g, '$1');
}

function manifest() {
  const peers = { ioredis: '>=5', redis: '>=5', pg: '>=8', 'node-zookeeper-client': '>=1.1' };
  return {
    name: '@stampede/locks',
    version,
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
