import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { readCatalogue } from '../../bench/kit/admin.ts';
import { lockVariable, missingLockServers } from '../../bench/kit/lock-servers.ts';
import { startService } from '../../bench/kit/service.ts';

const folder = mkdtempSync(join(tmpdir(), 'stampede-service-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A program that stands in for the compiled service. */
function program(name: string, code: string): string {
  const path = join(folder, `${name}.mjs`);
  writeFileSync(path, code);
  return path;
}

const settings = { strategy: 'lua', lock: 'redis', databaseUrl: 'postgres://x/y', redisUrl: 'redis://x' };

const listening = `
  import { createServer } from 'node:http';
  const server = createServer((request, response) => {
    if (request.url === '/die') process.exit(3);
    response.end(JSON.stringify({
      env: process.env, lock: process.env.LOCK,
      strategies: [{ name: process.env.STRATEGY, summary: 'one', usesLock: true, guarantees: { neverOversells: true } }],
    }));
  });
  console.log('not JSON');
  server.listen(0, '127.0.0.1', () => {
    console.log(JSON.stringify({ level: 30, msg: 'listening', port: server.address().port }));
  });
`;

describe('a service process', () => {
  it('is ready when it says so, has a clean environment, and ends in order', async () => {
    process.env.PAYMENT_WINDOW_S = '1';
    process.env.SEGMENTS = '7';
    const entry = program('good', `${listening} process.on('SIGTERM', () => process.exit(0));`);
    const service = await startService(settings, { entry });
    delete process.env.PAYMENT_WINDOW_S;
    delete process.env.SEGMENTS;

    const { env } = (await (await fetch(service.url)).json()) as { env: Record<string, string> };
    expect(env).toMatchObject({
      STRATEGY: 'lua',
      LOCK: 'redis',
      DATABASE_URL: 'postgres://x/y',
      REDIS_URL: 'redis://x',
      PORT: '0',
      HOST: '127.0.0.1',
      SEGMENTS: '7',
    });
    expect(env.PAYMENT_WINDOW_S).toBeUndefined();
    expect(await readCatalogue(service.url)).toEqual({
      lock: 'redis',
      strategies: [{ name: 'lua', summary: 'one', usesLock: true, inPostgres: false, neverOversells: true }],
    });
    expect(await service.stop()).toBe(true);
    expect(service.died.aborted).toBe(false);
    await expect(fetch(service.url)).rejects.toThrow();
  });

  it('has the servers of its lock in its environment, and no other', async () => {
    const entry = program('locks', `${listening} process.on('SIGTERM', () => process.exit(0));`);
    const servers = { REDLOCK_URLS: 'redis://a,redis://b,redis://c', ZOOKEEPER_URL: 'zoo:2181' };
    const given = async (lock: string | null) => {
      await using service = await startService({ ...settings, lock }, { entry });
      const { env } = (await (await fetch(service.url)).json()) as { env: Record<string, string> };
      return Object.keys(servers).filter((name) => env[name]);
    };
    Object.assign(process.env, servers);
    try {
      expect(await given('redlock')).toEqual(['REDLOCK_URLS']);
      expect(await given('zookeeper')).toEqual(['ZOOKEEPER_URL']);
      for (const lock of ['redis', null]) expect(await given(lock)).toEqual([]);
    } finally {
      for (const name of Object.keys(servers)) delete process.env[name];
    }
  });

  it('is reported when it dies under load', async () => {
    const service = await startService(settings, { entry: program('mortal', listening) });
    await fetch(`${service.url}/die`).catch(() => {});
    await expect.poll(() => service.died.aborted).toBe(true);
    expect(String(service.died.reason)).toContain('ended with code 3');
    expect(await service.stop()).toBe(false);
  });

  it('is shown with its last words when it does not start', async () => {
    const entry = program(
      'broken',
      `console.log('{"msg":"migrating"}'); console.error('no database'); process.exit(1);`,
    );
    await expect(startService(settings, { entry })).rejects.toThrow(
      /STRATEGY=lua\) ended with code 1; its last lines:\n[\s\S]*no database/,
    );
  });

  it('is ended when it does not get ready in time', async () => {
    const entry = program('slow', `console.log('still here'); setInterval(() => {}, 1000);`);
    await expect(startService(settings, { entry, withinMs: 500 })).rejects.toThrow(/was silent for 500 ms/);
  });

  it('is ended when the user interrupts its start', async () => {
    const entry = program('slow2', `setInterval(() => {}, 1000);`);
    const signal = AbortSignal.timeout(100);
    await expect(startService(settings, { entry, signal })).rejects.toThrow(/timeout/);
  });
});

describe('the servers of locks', () => {
  it('are named by a variable of their own, where a lock has any', () => {
    expect(lockVariable('redlock')).toBe('REDLOCK_URLS');
    expect(lockVariable('zookeeper')).toBe('ZOOKEEPER_URL');
    // The stores of a trial are the bench's own, whatever the environment says.
    for (const lock of ['redis', 'redis-fair', 'postgres-row', 'no-such-lock', null])
      expect(lockVariable(lock)).toBeNull();
  });

  it('are asked for when nobody named them, each with its variable', () => {
    const locks = ['redis', 'redlock', 'postgres-row', 'zookeeper', 'no-such-lock'];
    const mistakes = missingLockServers(locks, { ZOOKEEPER_URL: '' });
    expect(mistakes).toEqual([
      expect.stringMatching(/^--locks redlock needs REDLOCK_URLS: .*at least three/),
      expect.stringMatching(/^--locks zookeeper needs ZOOKEEPER_URL: .*host:port/),
    ]);
    const env = { REDLOCK_URLS: 'redis://a,redis://b,redis://c', ZOOKEEPER_URL: 'a:2181' };
    expect(missingLockServers(locks, env)).toEqual([]);
  });
});
