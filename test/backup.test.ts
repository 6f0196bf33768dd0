/**
 * The commands of docs/how-to/back-up.md, with the roles of docs/how-to/deploy.md: from one Postgres to another, empty one. Both are the
 * system's, because the local Postgres has no pg_dump; where Debian has installed none, the test is skipped.
 */
import { existsSync, readdirSync } from 'node:fs';
import { mkdir, rm } from 'node:fs/promises';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { temporaryFolder } from '../lab/kit/temporary-folder.ts';
import { prepareDataFolder } from '../src/local/postgres-data.ts';
import { chooseAccount, pathWithin } from '../src/local/server-account.ts';
import { freePort, launch, type ServerProcess } from '../src/local/server-process.ts';
import { attempt, call, createSale, patch, pay } from './support/client.ts';
import { opened } from './support/opened.ts';
import { below, commandsOf, execute, samplesOf, standIns, text } from './support/samples.ts';
import { OwnRedis } from './support/servers.ts';
import { spawnService } from './support/service.ts';

const page = text('docs/how-to/back-up.md');
/** In place of the three dots. */
const PASSWORD = 'of-the-page';

const INSTALLED = '/usr/lib/postgresql';
/** Of the newest version. */
const major = existsSync(INSTALLED) ? Math.max(...readdirSync(INSTALLED).map(Number)) : null;
const programs = path.join(INSTALLED, String(major), 'bin');

let folder: string;
let PATH: string;
const redis = opened(() => OwnRedis.open());
const servers: ServerProcess[] = [];

beforeAll(async () => {
  folder = await temporaryFolder('stampede-test-backup-');
  PATH = `${standIns(folder)}:${programs}:${process.env.PATH}`;
});
afterAll(async () => {
  for (const server of servers) await server.stop('SIGQUIT', 15_000);
  await rm(folder, { recursive: true, force: true });
});

/** Starts an empty server, and creates the roles and the database by the statements of the page. @returns host and port */
async function startServer(name: string): Promise<string> {
  const own = path.join(folder, name);
  await mkdir(own, { mode: 0o755 });
  const program = { path: path.join(programs, 'postgres'), tree: path.dirname(programs) };
  const { account } = await chooseAccount({ server: 'Postgres', folder: own, program });
  const initdb = path.join(programs, 'initdb');
  const options = { folder: own, initdb, major: major!, account, password: PASSWORD };
  const data = await prepareDataFolder({ ...options, sync: false, say: () => {} });
  const port = await freePort();
  const settings = ['fsync=off', 'listen_addresses=127.0.0.1', 'unix_socket_directories='];
  const args = [
    ...['-D', pathWithin(data, account), '-p', String(port)],
    ...settings.flatMap((setting) => ['-c', setting]),
  ];
  const log = path.join(own, 'log');
  servers.push(
    await launch({ command: program.path, args, cwd: data, log, ...account.ids }, 'postgres-failed'),
  );
  const host = `127.0.0.1:${port}`;
  await expect
    .poll(
      () => execute(folder, { PATH }, 'pg_isready', '-h', '127.0.0.1', '-p', String(port)).catch(String),
      {
        timeout: 120_000,
      },
    )
    .toContain('accepting');
  const roles = samplesOf(below(text('docs/how-to/deploy.md'), 'Separate the database roles'));
  const { code } = roles.find(({ language }) => language === 'sql')!;
  const statements = code.replaceAll('…', PASSWORD).trim().split('\n');
  const superuser = `postgresql://stampede:${PASSWORD}@${host}/postgres`;
  await execute(folder, { PATH }, 'psql', superuser, ...statements.flatMap((statement) => ['-c', statement]));
  return host;
}

const urls = (host: string) => ({
  DATABASE_URL: `postgresql://stampede_service:${PASSWORD}@${host}/stampede`,
  MIGRATION_DATABASE_URL: `postgresql://stampede_owner:${PASSWORD}@${host}/stampede`,
  REDIS_URL: redis.url,
});

/** Runs the commands of a part of the page. @returns what they print */
function follow(host: string, heading: string): Promise<string> {
  const named = {
    ':…@db/': `:${PASSWORD}@${host}/`,
    'redis://cache:6379': redis.url,
    'redis-cli -h cache': `redis-cli -p ${redis.port}`,
  };
  const commands = commandsOf(below(page, heading)).join('');
  const script = Object.entries(named).reduce((all, [name, value]) => all.replaceAll(name, value), commands);
  return execute(folder, { ...urls(host), PATH }, 'sh', '-ec', script);
}

it.skipIf(major === null)(
  'a dump is restored to an empty server: what was free is sold, and a payment of a lost order is listed',
  { timeout: 600_000 },
  async () => {
    const first = await startServer('first');
    await using before = await spawnService(urls(first));
    const { id } = await createSale(before.url, 3);
    const ann = await attempt(before.url, id, 'ann');
    await follow(first, 'Back up');
    await expect(execute(folder, { PATH }, 'pg_dump', urls(first).DATABASE_URL)).rejects.toThrow(
      'permission denied for sequence',
    );
    const cid = await attempt(before.url, id, 'cid');
    const [known, lost] = [ann.body.orderId, cid.body.orderId];
    for (const orderId of [known, lost])
      expect((await pay(before.url, orderId)).body).toMatchObject({ status: 'paid' });
    const later = await createSale(before.url, 1);
    await before.stop();

    const second = await startServer('second');
    const said = await follow(second, 'Restore to an empty server');
    const [, started] =
      /npm start: lua redis 1 sale (\d+) 201\nRedis agrees with Postgres\.\n.* unbroken/.exec(said)!;
    expect(Number(started)).toBeGreaterThan(later.id);

    const { DATABASE_URL, REDIS_URL } = urls(second);
    await using after = await spawnService({ DATABASE_URL, REDIS_URL });
    expect((await attempt(after.url, id, 'dee')).body).toMatchObject({ reason: 'paused' });
    await patch(`${after.url}/sales/${id}`, { paused: false });
    const answers = [];
    for (const customer of ['ann', 'dee', 'eve', 'cid']) answers.push(await attempt(after.url, id, customer));
    expect(answers.map(({ status }) => status)).toEqual([200, 201, 201, 409]);
    expect(answers[0]!.body).toMatchObject({ orderId: known });
    expect((await pay(after.url, known)).body).toMatchObject({ status: 'paid' });
    const unmatched = { reason: 'unknown-order' };
    expect((await pay(after.url, lost)).body).toMatchObject(unmatched);
    const { body } = await call(`${after.url}/payments/unmatched`);
    expect(body).toMatchObject([{ ...unmatched, orderId: lost }]);
    await after.stop();
  },
);
