/**
 * The package `@stampede/locks`, packed and installed in an empty project: it depends on nothing, loads no client that is not used, has
 * correct types, and the examples of docs/how-to/use-the-locks.md print what they say, with ioredis and with node-redis.
 */
import { execFile } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core';
import { publint } from 'publint';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import { opened } from '../support/opened.ts';
import { envOf, openStoresWithRedis } from '../support/stores.ts';

const root = path.resolve(import.meta.dirname, '../..');
const page = readFileSync(path.join(root, 'docs/how-to/use-the-locks.md'), 'utf8');
/** The lines of the page: in the clone, and in a program. */
const [PACK, INSTALL] = /^```bash\n([\s\S]*?)^```$/m.exec(page)![1]!.trim().split('\n');
const examples = [...page.matchAll(/^```js\n([\s\S]*?)^```$/gm)].map(([, code]) => code!);

const stores = opened(openStoresWithRedis);
let folder: string;
let tarball: string;

const run = async (command: string, args: readonly string[], cwd = folder) => {
  const env = { ...process.env, ...envOf(stores), DATABASE_URL: stores.ownerUrl, NODE_ENV: '' };
  const done = promisify(execFile)(command, args, { cwd, env, timeout: 150_000 });
  const { stdout } = await done.catch(({ stdout, stderr }) => {
    throw new Error(`${command} ${args.join(' ')}: ${stdout}${stderr}`);
  });
  return stdout.trim();
};

beforeAll(async () => {
  folder = await temporaryFolder('stampede-test-package-');
  const untracked = () =>
    run('git', ['ls-files', '--others', '--exclude-standard', '*.tgz'], root).catch(() => '');
  const before = await untracked();
  await run('sh', ['-ec', PACK!], root);
  expect(await untracked(), 'a file that git would add').toBe(before);
  writeFileSync(path.join(folder, 'package.json'), '{ "type": "module" }');
  tarball = path.join(root, /dist\/\S+\.tgz/.exec(INSTALL!)![0]);
  await run('npm', ['install', '--prefer-offline', '--no-audit', '--no-fund', tarball]);
});
afterAll(() => rm(folder, { recursive: true, force: true }));

it('depends on nothing, and loads no client until it is used', async () => {
  const installed = readdirSync(path.join(folder, 'node_modules')).filter((name) => !name.startsWith('.'));
  expect(installed).toEqual(['@stampede']);
  const has = (load: string, name: string) =>
    run('node', ['-e', `(async () => console.log('${name}' in (${load})))()`]);
  expect(await has("await import('@stampede/locks')", 'redisLock')).toBe('true');
  expect(await has("await import('@stampede/locks/fencing')", 'admits')).toBe('true');
  expect(await has("require('@stampede/locks')", 'redisLock')).toBe('true');
});

it('has the files and types that its manifest promises', async () => {
  expect(await publint({ pkgDir: path.join(root, 'dist/stampede-locks'), strict: true })).toMatchObject({
    messages: [],
  });
  const analysis = await checkPackage(createPackageFromTarballData(readFileSync(tarball)));
  const problems = 'problems' in analysis ? analysis.problems : ['no types'];
  // It is a module: CommonJS loads it by Node's require of modules, and resolution from before `exports` does not find it.
  const others = problems.filter(
    (one) => !['node10', 'node16-cjs'].includes((one as { resolutionKind?: string }).resolutionKind ?? ''),
  );
  expect(others).toEqual([]);
});

describe('with clients', () => {
  beforeAll(() => {
    mkdirSync(path.join(folder, 'node_modules/@types'));
    for (const name of ['ioredis', 'redis', 'pg', '@types/node', '@types/pg'])
      symlinkSync(path.join(root, 'node_modules', name), path.join(folder, 'node_modules', name));
  });

  it.each(
    examples.map((code, n) => [/^import .* from '(ioredis|redis|pg)';$/m.exec(code)![1]!, n, code] as const),
  )('runs the example of %s (%i)', async (_, n, code) => {
    const printed = [...code.matchAll(/^console\.log\(.*\/\/ (.*)$/gm)].map(([, text]) => text);
    expect(printed).not.toEqual([]);
    writeFileSync(path.join(folder, `example-${n}.mjs`), code);
    expect(await run('node', [`example-${n}.mjs`])).toBe(printed.join('\n'));
  });

  it('accepts their types', async () => {
    const options = { strict: true, noEmit: true, module: 'NodeNext', target: 'ES2023', types: ['node'] };
    writeFileSync(path.join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions: options }));
    writeFileSync(path.join(folder, 'caller.mts'), CALLER);
    expect(await run(path.join(root, 'node_modules/.bin/tsc'), ['-p', folder])).toBe('');
  });
});

const CALLER = `import {
  LockOptionsError, postgresRowLock, redisLock, redisSemaphore, redlock, reentrant, using, usingAll, usingOrThrow,
} from '@stampede/locks';
import { admits } from '@stampede/locks/fencing';
import { Cluster, Redis } from 'ioredis';
import pg from 'pg';
import { createClient, createCluster, createSentinel } from 'redis';

const url = 'redis://127.0.0.1';
const sentinels = [{ host: '127.0.0.1', port: 26379 }];
const clients = [new Redis(url), createClient({ url })];
await redlock({ redis: clients });
await redisLock({ redis: new Cluster(sentinels) });
await redisLock({ redis: createCluster({ rootNodes: [{ url }] }) });
const lock = await redisLock({ redis: createSentinel({ name: 'primary', sentinelRootNodes: sentinels }) });
const pool = new pg.Pool();
await postgresRowLock({ pool, onEnd: ({ ended }) => ended === 'lost' });
const result = await using(lock, 'a', { ttlMs: 1_000, waitMs: 0 }, async (lease) => {
  await using held = lease;
  return admits(await pool.connect(), held);
});
if (result.kind === 'done') result.value satisfies boolean;
(await usingOrThrow(lock, 'a', async ({ token }) => token)).value satisfies string;
const semaphore = await redisSemaphore({ redis: new Redis(url), permits: 3, ttlMs: 5_000 });
await reentrant(semaphore)('a', () => usingAll(lock, ['b'], async ({ leases }) => leases.size));
await semaphore.acquire('a').catch((error) => error instanceof LockOptionsError && error.option);
`;
