import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
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
});
