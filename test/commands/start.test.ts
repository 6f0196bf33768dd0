import { rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import path from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { call } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { installService, type Run, startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const installed = opened(installService);
const runs: Run[] = [];

afterEach(async () => {
  for (const run of runs.splice(0)) {
    await run.kill();
  }
  await rm(path.join(installed.folder, '.env'), { recursive: true, force: true });
});

function start(env: Readonly<Record<string, string>>, prepare = ':'): Run {
  const run = installed.start(env, { prepare });
  runs.push(run);
  return run;
}
/** Starts a service that must fail. @returns its output */
async function failure(env: Readonly<Record<string, string>>, prepare?: string): Promise<string> {
  const run = start(env, prepare);
  expect(await run.url).toBeNull();
  expect(run.process.exitCode).toBe(1);
  return run.log.join('\n');
}
const writeEnv = (variables: Readonly<Record<string, string>>) =>
  writeFile(
    path.join(installed.folder, '.env'),
    Object.entries(variables)
      .map(([name, value]) => `${name}=${value}\n`)
      .join(''),
  );

describe('a file .env', () => {
  it('is read by the service; the environment wins', async () => {
    await writeEnv({ ...envOf(stores), STRATEGY: 'optimistic', LOCK: 'redis-owner', SHOP_NAME: 'x' });
    const run = start({ LOCK: 'redis-fair' });
    const url = await run.url;
    expect(run.log.join()).toContain('"names":["SHOP_NAME"],"msg":"Nothing reads these variables of .env"');
    const { body } = await call(`${url}/strategies`);
    expect(body).toMatchObject({ active: 'optimistic', lock: 'redis-fair' });
  });

  it('that is invalid is rejected like the environment', async () => {
    await writeEnv({ STRATEGY: 'luaa', SEGMENTS: '-1', HOSTS: '::1' });
    const said = await failure(envOf(stores));
    expect(said).toContain('The configuration has 3 mistakes');
    expect(said).toContain('HOSTS in .env is unknown; did you mean HOST?');
    expect(said).toContain('STRATEGY="luaa"');
  });
});

it('a taken port is reported before any store is contacted, also with WORKERS=2', async () => {
  const other = createServer();
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
  const { port } = other.address() as { port: number };
  const unreachable = { DATABASE_URL: 'postgresql://u:p@127.0.0.1:1/x', REDIS_URL: 'redis://127.0.0.1:1' };
  const said = await failure({ ...unreachable, PORT: String(port), WORKERS: '2' });
  expect(said.trim()).toBe(
    `Port ${port} is in use. Stop the process that listens there, or choose another port: PORT=${port + 1} npm start`,
  );
  await new Promise((resolve) => other.close(resolve));
});

const down = 'redis://127.0.0.1:1';
it.each([
  [{ REDIS_URL: 'redis+sentinel://127.0.0.1:1/mymaster' }, 'Cannot use Redis at 127.0.0.1:1/mymaster: '],
  [{ REDIS_URL: 'redis+cluster://127.0.0.1:1,127.0.0.1:2' }, 'Cannot use Redis at 127.0.0.1:1,127.0.0.1:2: '],
  [{ LOCK: 'redlock', REDLOCK_URLS: [1, 2, 3].map((n) => down + n).join() }, 'LOCK=redlock cannot start: '],
  [{ LOCK: 'zookeeper', ZOOKEEPER_URL: '127.0.0.1:1' }, 'LOCK=zookeeper cannot start: '],
  [{ DATABASE_URL: 'postgresql://u:p@127.0.0.1:1/x' }, 'Cannot use Postgres at 127.0.0.1:1/x: '],
])('a start that cannot reach %o says so', async (given, said) => {
  await expect(startService({ ...envOf(stores), ...given })).rejects.toMatchObject({
    name: 'StartError',
    message: expect.stringMatching(new RegExp(`${said.replaceAll('+', '\\+')}[\\s\\S]*Check `)),
  });
});

it('STRATEGY=unsafe with WORKERS=2 warns once that it oversells', async () => {
  const run = start({ ...envOf(stores), STRATEGY: 'unsafe', WORKERS: '2' });
  expect(await run.url).not.toBeNull();
  const lines = run.log.filter((line) => line.includes('oversells by design'));
  expect(lines.map((line) => (JSON.parse(line) as { level: number }).level)).toEqual([40]);
});

/** Hides the machine's Redis servers from one process: only root may. */
const HIDE_REDIS = `exec unshare -m /bin/sh -c '
  for folder in $(echo "$PATH" | tr : " ") /usr/bin /usr/local/bin; do
    for program in "$folder/redis-server" "$folder/valkey-server"; do
      [ ! -x "$program" ] || mount --bind /dev/null "$program"
    done
  done
  exec "$0" "$@"' "$0" "$@"`;

const mayHide = process.getuid?.() === 0 && process.platform === 'linux';
it.runIf(mayHide)('needs no Redis unless a setting does, and names that setting', async () => {
  const env = { DATABASE_URL: stores.databaseUrl, LOCAL_REDIS: 'never' };
  const said = await failure({ ...env, STRATEGY: 'lua' }, HIDE_REDIS);
  expect(said).toContain('redis-server');
  expect(said).toContain('Redis is for STRATEGY=lua');
  const run = start(env, HIDE_REDIS);
  const url = await run.url;
  expect(run.log.filter((line) => line.includes('On Postgres alone'))).toHaveLength(1);
  const expected = { active: 'group-commit', lock: 'postgres-row' };
  expect((await call(`${url}/strategies`)).body).toMatchObject(expected);
  const readiness = async () => (await call(`${url}/readyz`)).body;
  await expect.poll(readiness).toEqual({ status: 'ok', stores: { postgres: 'ok' } });
});
