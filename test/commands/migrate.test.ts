/** `npm run migrate` and MIGRATE=never, on a separate database. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { beforeAll, expect, it } from 'vitest';
import { withPostgres } from '../../lab/servers/stores.ts';
import { serviceUrlOf } from '../../src/local/postgres-roles.ts';
import { buy, createSale } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { entryOf, runCommand, startService } from '../support/service.ts';
import { openDatabase } from '../support/stores.ts';

const database = opened(() => openDatabase(''));
const urls = { DATABASE_URL: '', MIGRATION_DATABASE_URL: '' };
beforeAll(() => {
  urls.MIGRATION_DATABASE_URL = database.url;
  urls.DATABASE_URL = serviceUrlOf(database.url);
});
const starting = (env: Readonly<Record<string, string>>) =>
  startService({ REDIS_URL: 'none', MIGRATE: 'never', ...env });

const tables = () =>
  withPostgres(database.url, async (client) => {
    const { rows } = await client.query(`SELECT tablename FROM pg_tables WHERE schemaname = 'public'`);
    return rows.length;
  });

it('with MIGRATE=never a start is refused, and names the command, whatever its role may do', async () => {
  for (const env of [{ DATABASE_URL: database.url }, urls]) {
    const refusal = {
      name: 'StartError',
      message: expect.stringMatching(/_init, .*Run first: npm run migrate/),
    };
    await expect(starting(env)).rejects.toMatchObject(refusal);
  }
  expect(await tables()).toBe(0);
});

it('a signal ends it at once, also one that waits for Postgres', async () => {
  const silent = createServer();
  await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve));
  const connected = once(silent, 'connection');
  const { port } = silent.address() as AddressInfo;
  const env = { ...process.env, DATABASE_URL: `postgresql://a:b@127.0.0.1:${port}/c` };
  const command = spawn(process.execPath, [entryOf('migrate')], { env, stdio: 'ignore' });
  const ended = once(command, 'exit');
  const [socket] = (await connected) as [Socket];
  command.kill('SIGTERM');
  expect(await ended).toEqual([143, null]);
  socket.destroy();
  silent.close();
});

it('two at once apply every migration once, and say which', async () => {
  const results = await Promise.all([1, 2].map(() => runCommand('migrate', urls)));
  const outputs = results.map(({ code, out, err }) => `${code} ${err}${out}`).sort();
  expect(outputs[1]).toBe('0 The database is current.\n');
  expect(outputs[0]).toMatch(
    /^0 Applied database migrations\n {2}20261122000000_init\n( {2}\d{14}_\w+\n)+The database is current\.\n$/,
  );
});

it('then the role of the service starts alone, sells, and the command may run again meanwhile', async () => {
  await using service = await starting({ DATABASE_URL: urls.DATABASE_URL });
  const { id } = await createSale(service.url, 1);
  expect(await runCommand('migrate', urls)).toEqual({ code: 0, out: 'The database is current.\n', err: '' });
  expect((await buy(service.url, id, 'ann')).status).toBe(201);
});

it('reports a newer version, and exits with 2 and the reason if it cannot migrate', async () => {
  const record = (migration: string) =>
    withPostgres(database.url, (client) =>
      client.query(
        `INSERT INTO _prisma_migrations (id, checksum, migration_name, finished_at) VALUES (gen_random_uuid(), '', $1, now())`,
        [migration],
      ),
    );
  await record('99990101000000_next');
  expect(await runCommand('migrate', urls)).toMatchObject({
    code: 0,
    out: expect.stringMatching(
      /^A newer version has migrated .*\n {2}99990101000000_next\nThe database is current\.\n$/,
    ),
  });
  await record('20261122000001_fork');
  const failed = await runCommand('migrate', urls);
  expect(failed).toMatchObject({ code: 2, out: '', err: expect.stringContaining('another history') });
});
