/**
 * The package `@stampede/locks`, packed and installed in an empty project: it depends on nothing, loads no client that is not used, has
 * correct types, and the examples of docs/how-to/use-the-locks.md print what they say, with ioredis and with node-redis.
 */
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { opened } from '../support/opened.ts';
import { installPackage, testsOfPackage } from '../support/packages.ts';
import { envOf, openStoresWithRedis } from '../support/stores.ts';

const root = path.resolve(import.meta.dirname, '../..');
const page = readFileSync(path.join(root, 'docs/how-to/use-the-locks.md'), 'utf8');
const examples = [...page.matchAll(/^```js\n([\s\S]*?)^```$/gm)].map(([, code]) => code!);

const stores = opened(openStoresWithRedis);
const packed = opened(() => installPackage(page));
const env = () => ({ ...envOf(stores), DATABASE_URL: stores.ownerUrl });

testsOfPackage('locks', { '@stampede/locks': 'redisLock', '@stampede/locks/fencing': 'admits' }, packed);

describe('with clients', () => {
  beforeAll(() => {
    const modules = path.join(packed.folder, 'node_modules');
    mkdirSync(path.join(modules, '@types'));
    for (const name of ['ioredis', 'redis', 'pg', '@types/node', '@types/pg'])
      symlinkSync(path.join(root, 'node_modules', name), path.join(modules, name));
  });

  it.each(
    examples.map((code, n) => [/^import .* from '(ioredis|redis|pg)';$/m.exec(code)![1]!, n, code] as const),
  )('runs the example of %s (%i)', async (_, n, code) => {
    const printed = [...code.matchAll(/^console\.log\(.*\/\/ (.*)$/gm)].map(([, text]) => text);
    expect(printed).not.toEqual([]);
    writeFileSync(path.join(packed.folder, `example-${n}.mjs`), code);
    expect(await packed.run('node', [`example-${n}.mjs`], env())).toBe(printed.join('\n'));
  });

  it('accepts their types', async () => {
    const options = { strict: true, noEmit: true, module: 'NodeNext', target: 'ES2023', types: ['node'] };
    writeFileSync(path.join(packed.folder, 'tsconfig.json'), JSON.stringify({ compilerOptions: options }));
    writeFileSync(path.join(packed.folder, 'caller.mts'), CALLER);
    expect(await packed.run(path.join(root, 'node_modules/.bin/tsc'), ['-p', '.'])).toBe('');
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
