import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { lockVariable, missingLockServers } from '../../lab/servers/lock-servers.ts';
import { startService } from '../../lab/service.ts';

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
    response.end(JSON.stringify({ env: process.env }));
  });
  console.log('not JSON');
  server.listen(0, '127.0.0.1', () => {
    console.log(JSON.stringify({ level: 30, msg: 'listening', port: server.address().port }));
  });
`;

describe('a service process', () => {
  it('is ready when it logs so, has a clean environment, and stops gracefully', async () => {
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
    expect(await service.stop()).toBe(true);
    expect(service.died.aborted).toBe(false);
    await expect(fetch(service.url)).rejects.toThrow();
  });

  it('is reported when it dies under load', async () => {
    const service = await startService(settings, { entry: program('mortal', listening) });
    await fetch(`${service.url}/die`).catch(() => {});
    await expect.poll(() => service.died.aborted).toBe(true);
    expect(String(service.died.reason)).toContain('ended with code 3');
    expect(await service.stop()).toBe(false);
  });

  it('is reported with its last lines when it does not start', async () => {
    const entry = program(
      'broken',
      `console.log('{"msg":"migrating"}'); console.error('no database'); process.exit(1);`,
    );
    await expect(startService(settings, { entry })).rejects.toThrow(
      /STRATEGY=lua\) ended with code 1; its last lines:\n[\s\S]*no database/,
    );
  });

  it('is stopped when it is not ready in time', async () => {
    const entry = program('slow', `console.log('still here'); setInterval(() => {}, 1000);`);
    await expect(startService(settings, { entry, withinMs: 500 })).rejects.toThrow(/was silent for 500 ms/);
  });
});

describe('a service on another machine', () => {
  it('is started there by ssh with its environment, and ends with the connection', async () => {
    const there = join(folder, "it's there");
    mkdirSync(join(there, 'dist/commands'), { recursive: true });
    writeFileSync(join(there, 'package.json'), '{"type":"module"}');
    writeFileSync(
      join(there, 'dist/commands/start.js'),
      `${listening} process.on('SIGTERM', () => process.exit(0));`,
    );
    // Runs ssh's command on this machine.
    writeFileSync(join(folder, 'ssh'), '#!/bin/sh\nwhile [ $# -gt 1 ]; do shift; done\nexec sh -c "$1"\n');
    chmodSync(join(folder, 'ssh'), 0o755);
    const variables = { BENCH_SERVICE: `me@localhost:${there}`, DATABASE_URL: 'x', REDIS_URL: 'x' };
    Object.assign(process.env, variables, {
      ADMIN_TOKEN: "it's secret",
      PATH: `${folder}:${process.env.PATH}`,
    });
    try {
      const service = await startService(settings);
      expect(new URL(service.url).hostname).toBe('localhost');
      expect(service.pid).toBeNull();
      const { env } = (await (await fetch(service.url)).json()) as { env: Record<string, string> };
      expect(env).toMatchObject({ STRATEGY: 'lua', HOST: '0.0.0.0', ADMIN_TOKEN: "it's secret" });
      expect(await service.stop()).toBe(true);
      await expect(fetch(service.url)).rejects.toThrow();
    } finally {
      for (const name of [...Object.keys(variables), 'ADMIN_TOKEN']) delete process.env[name];
      process.env.PATH = process.env.PATH!.slice(folder.length + 1);
    }
  });
});

it('the servers of a lock are required by its variable', () => {
  expect(['redlock', 'redis', null].map(lockVariable)).toEqual(['REDLOCK_URLS', null, null]);
  const locks = ['redis', 'redlock', 'postgres-row', 'redis-wait', 'zookeeper', 'no-such-lock'];
  const mistakes = missingLockServers(locks, { ZOOKEEPER_URL: '' });
  expect(mistakes).toEqual([
    expect.stringMatching(/^--locks redlock needs REDLOCK_URLS: .*at least three/),
    expect.stringMatching(/^--locks redis-wait needs REDIS_WAIT: .*the number of replicas/),
    expect.stringMatching(/^--locks zookeeper needs ZOOKEEPER_URL: .*host:port/),
  ]);
  const env = { REDLOCK_URLS: 'redis://a,redis://b,redis://c', REDIS_WAIT: '1', ZOOKEEPER_URL: 'a:2181' };
  expect(missingLockServers(locks, env)).toEqual([]);
});
