/** TLS to both stores, on servers whose certificates the test makes. A process is needed where NODE_EXTRA_CA_CERTS is. */
import { spawnSync } from 'node:child_process';
import { chmod, chown, copyFile, stat, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { Redis } from 'ioredis';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { removeFolder, temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import { startPostgres } from '../../lab/servers/postgres-folder.ts';
import { SERVICE_ROLE, serviceUrlOf } from '../../src/local/postgres-roles.ts';
import type { PostgresServer } from '../../src/local/postgres-server.ts';
import { ensureRedisServer, type RedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import { freePort } from '../../src/local/server-process.ts';
import { migrate } from '../../src/store/postgres/migrate.ts';
import { type Authority, createAuthority, createServerKey, whyNoOpenssl } from '../support/certificates.ts';
import { buy, createSale, eventually } from '../support/client.ts';
import { launch, spawnService, startService } from '../support/service.ts';

/** Starts Redis without a certificate: it fails, and names the cause if it was built without TLS. */
async function whyNoTls(): Promise<string | null> {
  const { path: program } = await ensureRedisServer();
  const { stdout } = spawnSync(program, ['--port', '0', '--tls-port', '1'], { encoding: 'utf8' });
  return /Failed finding TLS support|Bad directive/.test(stdout) ? `${program} was built without TLS` : null;
}

const missing = (await whyNoOpenssl()) ?? (await whyNoTls());

let folder: string;
let authority: Authority;
let postgres: PostgresServer;
let redis: RedisServer;
let tlsPort: number;
/** Certificates of the servers. */
const certificates = { right: '', elsewhere: '' };
type Certificate = keyof typeof certificates;

const database = () => path.join(folder, 'postgres', 'data');
const startOwn = (port?: number) =>
  startPostgres({
    folder: path.join(folder, 'postgres'),
    args: ['-c', 'fsync=off'],
    ...(port !== undefined && { port }),
  });
/** The options of a Redis that listens with TLS at `port`. */
function redisTls(port: number): string[] {
  const files = ['--tls-cert-file', certificates.right, '--tls-key-file', path.join(folder, 'server.key')];
  const tls = ['--tls-port', String(port), ...files, '--tls-ca-cert-file', authority.certificate];
  return [...tls, '--tls-auth-clients', 'no'];
}
const startRedis = (port?: number) => {
  const args = redisTls(tlsPort);
  return startRedisServer({ folder: path.join(folder, 'redis'), args, ...(port !== undefined && { port }) });
};

/** A cluster of one server, which announces the host of its certificate as the managed ones do. @returns its TLS port, too */
async function startCluster() {
  const [port, busPort] = [await freePort(), await freePort()];
  const cluster = ['--cluster-enabled', 'yes', '--tls-cluster', 'yes', '--cluster-port', String(busPort)];
  const names = ['--cluster-announce-hostname', 'localhost', '--cluster-preferred-endpoint-type', 'hostname'];
  const args = [...redisTls(port), ...cluster, ...names];
  const server = await startRedisServer({ folder: path.join(folder, 'cluster'), args });
  const admin = new Redis(server.url);
  await admin.call('CLUSTER', 'ADDSLOTSRANGE', 0, 16_383);
  const info = () => admin.call('CLUSTER', 'INFO') as Promise<string>;
  await eventually(info, (text) => text.includes('cluster_state:ok'));
  return { server, admin, port };
}

async function onPostgres(...statements: readonly string[]): Promise<pg.QueryResult> {
  const client = new pg.Client({ connectionString: postgres.url() });
  await client.connect();
  try {
    let result: pg.QueryResult | undefined;
    for (const statement of statements) result = await client.query(statement);
    return result!;
  } finally {
    await client.end();
  }
}

/** Requires TLS of the service's role. Postgres must own its key file. */
async function turnOnTls(): Promise<void> {
  const { uid, gid } = await stat(database());
  const key = path.join(database(), 'server.key');
  await copyFile(path.join(folder, 'server.key'), key);
  await chmod(key, 0o600);
  if (process.getuid?.() === 0) await chown(key, uid, gid);
  const lines = [`hostssl all ${SERVICE_ROLE} all scram-sha-256`, 'hostnossl all stampede all scram-sha-256'];
  await writeFile(path.join(database(), 'pg_hba.conf'), `${lines.join('\n')}\n`);
  await onPostgres(`ALTER SYSTEM SET ssl_cert_file = '${certificates.right}'`, `ALTER SYSTEM SET ssl = 'on'`);
  await onPostgres('SELECT pg_reload_conf()');
  const ssl = async () => (await onPostgres('SHOW ssl')).rows[0].ssl;
  await eventually(ssl, (is) => is === 'on');
}

/** Makes both servers present another certificate. */
async function show(name: Certificate): Promise<void> {
  const file = certificates[name];
  await onPostgres(`ALTER SYSTEM SET ssl_cert_file = '${file}'`, 'SELECT pg_reload_conf()');
  const shown = () => onPostgres('SHOW ssl_cert_file');
  await expect.poll(shown).toMatchObject({ rows: [{ ssl_cert_file: file }] });
  const admin = new Redis(redis.url);
  await admin.config('SET', 'tls-cert-file', file).finally(() => admin.disconnect());
}

/** @param parameters of the URL */
function databaseUrl(parameters: string): string {
  const url = Object.assign(new URL(serviceUrlOf(postgres.url())), { hostname: 'localhost' });
  return `${url.href}?${parameters}`;
}
const redisUrl = () => `rediss://localhost:${tlsPort}`;
const full = () => `sslmode=verify-full&sslrootcert=${authority.certificate}`;

/** The environment of a service: valid values, unless given. */
const environment = (more: Readonly<Record<string, string>> = {}) => ({
  DATABASE_URL: databaseUrl(full()),
  REDIS_URL: redisUrl(),
  NODE_EXTRA_CA_CERTS: authority.certificate,
  STRATEGY: 'global-lock',
  ...more,
});

/** Starts a service that knows no certificate authority but those of its URLs. @returns `listens`, or why it failed */
async function outcome(urls: Readonly<Record<string, string>>): Promise<string> {
  const service = await startService(environment(urls)).catch((error: Error) => error.message);
  if (typeof service === 'string') return service;
  await service.stop();
  return 'listens';
}

describe.skipIf(missing !== null)(`TLS to the stores ${missing ?? ''}`, () => {
  beforeAll(async () => {
    folder = await temporaryFolder('stampede-test-tls-');
    // Redis accepts a key that others may read.
    await chmod(await createServerKey(folder), 0o644);
    authority = await createAuthority(folder);
    certificates.right = await authority.issue('localhost');
    certificates.elsewhere = await authority.issue('db.example');
    tlsPort = await freePort();
    [postgres, redis] = await Promise.all([startOwn(), startRedis()]);
    await migrate(postgres.url(), SERVICE_ROLE);
    await turnOnTls();
  });
  afterAll(async () => {
    await Promise.all([postgres?.kill(), redis?.kill()]);
    await removeFolder(folder);
  });

  it('sells a unit over encrypted connections alone, and goes on after both servers were restarted', async () => {
    await using service = await spawnService(environment());
    const { id } = await createSale(service.url, 5);
    expect((await buy(service.url, id, 'ann')).status).toBeLessThan(300);
    const { rows } = await onPostgres(
      `SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE usename = '${SERVICE_ROLE}'`,
    );
    expect(rows).toEqual([{ ssl: true }]);
    const admin = new Redis(redis.url);
    const clients = ((await admin.client('LIST')) as string).trim().split('\n');
    admin.disconnect();
    const plain = clients.filter((client) => !client.includes(`laddr=127.0.0.1:${tlsPort} `));
    expect(clients.length - plain.length).toBeGreaterThan(0);
    expect(plain).toHaveLength(1); // this client

    await Promise.all([postgres.stop(), redis.stop()]);
    [postgres, redis] = await Promise.all([startOwn(postgres.port), startRedis(redis.port)]);
    await expect.poll(async () => (await buy(service.url, id, 'bob')).status).toBeOneOf([200, 201]);
    expect((await buy(service.url, id, 'ann')).status).toBe(200);
  });

  it('a cluster is used by the host that its certificate names, and an error names what is wrong', async () => {
    const { server, admin, port } = await startCluster();
    onTestFinished(async () => {
      admin.disconnect();
      await server.kill();
    });
    const env = environment({ REDIS_URL: `rediss+cluster://localhost:${port}`, STRATEGY: 'lua' });
    await using service = await spawnService(env);
    const { id } = await createSale(service.url, 1);
    expect((await buy(service.url, id, 'ann')).status).toBe(201);
    await service.stop();

    await admin.config('SET', 'tls-cert-file', certificates.elsewhere);
    await using run = launch(env);
    expect(await run.url).toBeNull();
    expect(run.log.join('\n')).toMatch(/Cannot use Redis[\s\S]*altnames[\s\S]*is for another host name/);
  });

  it.each<[string, Certificate, () => string, RegExp]>([
    ['sslmode=verify-full and sslrootcert', 'right', full, /^listens$/],
    ['sslmode=no-verify, which verifies nothing', 'right', () => 'sslmode=no-verify', /^listens$/],
    ['a certificate for another host', 'elsewhere', full, /altnames[\s\S]*is for another host name/],
    ['an unknown CA', 'right', () => 'sslmode=verify-full', /NODE_EXTRA_CA_CERTS/],
    // To this driver it is verify-full.
    ['an unknown CA and sslmode=require', 'right', () => 'sslmode=require', /NODE_EXTRA_CA_CERTS/],
    ['no sslmode', 'right', () => '', /no encryption[\s\S]*sslmode=verify-full/],
  ])('Postgres, with %s', async (_what, certificate, parameters, said) => {
    await show(certificate);
    const urls = { DATABASE_URL: databaseUrl(parameters()), REDIS_URL: redis.url };
    expect(await outcome(urls)).toMatch(said);
    await show('right');
  });

  it('Redis with a certificate of an unknown CA, or for another host, is refused', async () => {
    expect(await outcome({ REDIS_URL: redisUrl() })).toMatch(/Cannot use Redis[\s\S]*NODE_EXTRA_CA_CERTS/);
    await show('elsewhere');
    await using run = launch(environment({ DATABASE_URL: databaseUrl('sslmode=no-verify') }));
    expect(await run.url).toBeNull();
    expect(run.log.join('\n')).toMatch(/Cannot use Redis[\s\S]*altnames[\s\S]*is for another host name/);
    await show('right');
  });
});
