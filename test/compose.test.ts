/** docker-compose.yml, read without a Docker engine: it has no default password, and its parts fit together and to the documents. */
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseEnv as parseEnvFile } from 'node:util';
import { Redis } from 'ioredis';
import { describe, expect, it, onTestFinished } from 'vitest';
import { parse } from 'yaml';
import { temporaryFolder } from '../lab/kit/temporary-folder.ts';
import { parseEnv } from '../src/config/env.ts';
import { parseDatabaseUrl } from '../src/config/urls/database.ts';
import { parseRedisUrl } from '../src/config/urls/redis.ts';
import { findRedisServer, startRedisServer } from '../src/local/redis-server.ts';
import { choices } from '../src/service/core.ts';

const root = fileURLToPath(new URL('../', import.meta.url));
const text = (file: string) => readFileSync(path.join(root, file), 'utf8');

/** Runs scripts/secrets.sh in a new folder with this `.env`. @returns the variables of its `.env` */
function writeSecrets(existing = '') {
  const folder = mkdtempSync(path.join(tmpdir(), 'stampede-test-secrets-'));
  const file = path.join(folder, '.env');
  writeFileSync(file, existing);
  cpSync(`${root}scripts/secrets.sh`, path.join(folder, 'scripts/secrets.sh'));
  execFileSync('sh', ['scripts/secrets.sh'], { cwd: folder, stdio: 'ignore' });
  expect(statSync(file).mode & 0o077, 'others may not read .env').toBe(0);
  return parseEnvFile(readFileSync(file, 'utf8')) as Record<string, string>;
}

/** What Compose reads: it merges `<<`, and replaces `${NAME}`, `${NAME:-default}` and `${NAME:?message}`, but not `$$`. */
function readCompose(env: Readonly<Record<string, string | undefined>>) {
  const replaced = (match: string, name = '', kind = '', rest = '') => {
    if (kind === '?' && !env[name]) throw new Error(`required variable ${name} is missing a value: ${rest}`);
    return match === '$$' ? match : env[name] || (kind === '-' ? rest : '');
  };
  const interpolated = (_: unknown, value: unknown) =>
    typeof value === 'string' ? value.replace(/\$\$|\$\{(\w+)(?::([-?])([^}]*))?\}/g, replaced) : value;
  // The limit of aliases is for untrusted files.
  return parse(text('docker-compose.yml'), interpolated, { merge: true, maxAliasCount: -1 });
}

const secrets = writeSecrets();
const { services, configs } = readCompose(secrets);
const names = Object.keys(services);
/** The services that run Stampede. */
const stampedes = names.filter((name) => services[name].build);
const inProfile = (profile: string) => names.filter((name) => services[name].profiles?.includes(profile));
/** These profiles are separate deployments; the names of their services start with the profile. */
const deploymentOf = (name: string) => /^(ha|cluster|alone|observe)-/.exec(name)?.[1] ?? '';
const [, imageHost] = / HOST=(\S+)/.exec(text('Dockerfile'))!;
const configOf = (name: string) => parseEnv({ HOST: imageHost, ...services[name].environment }, choices);
const contentOf = (config: string): string => (configs[config].content ?? '').replaceAll('$$', '$');
const commandOf = (name: string): string => (services[name].command ?? []).join(' ').replaceAll('$$', '$');
/** Host ports that a service publishes. */
const portsOf = (name: string): string[] =>
  (services[name].ports ?? []).map((port: string) => port.split(':')[1]);

it('pins every image, and starts three services without a profile', () => {
  expect(names.filter((name) => !services[name].profiles).sort()).toEqual(['postgres', 'redis', 'stampede']);
  const images = names.flatMap((name) => services[name].image ?? []);
  for (const image of images) expect(image).toMatch(/^([a-z]+\/)?[a-z]+:v?\d+(\.\d+)*$/);
  // Locks rely on the same Redis everywhere, and a standby on the same Postgres.
  for (const product of ['redis:', 'postgres:'])
    expect(new Set(images.filter((image) => image.startsWith(product))).size).toBe(1);
});

it('passes every variable of .env.example, except where and on what machine the service runs, and how it is replaced', () => {
  const [, ...known] = text('.env.example').split(/^(?:# )?(?=[A-Z][A-Z_]+=)/m);
  const variables = known.map((line) => line.split('=')[0]);
  expect(variables.length).toBeGreaterThan(30);
  const passed = Object.keys(services.stampede.environment);
  const own = ['PORT', 'HOST', 'ADMIN_PORT', 'ADMIN_HOST', 'LOCAL_REDIS', 'MIGRATE', 'SHUTDOWN_DELAY_MS'];
  expect(variables.filter((name) => !passed.includes(name!)).sort()).toEqual(own.sort());
});

describe.each(stampedes)('the service %s', (name) => {
  it('gets a valid configuration', () => {
    expect(configOf(name).adminTokens).toHaveLength(1);
    const known = text('.env.example');
    for (const variable of Object.keys(services[name].environment)) expect(known).toContain(`${variable}=`);
  });

  it('waits for all servers of its deployment', () => {
    const awaitedBy = (one: string): string[] =>
      Object.keys(services[one].depends_on ?? {}).flatMap((other) => [other, ...awaitedBy(other)]);
    const own = names.filter((one) => deploymentOf(one) === deploymentOf(name));
    const servers = own.filter((one) => !stampedes.includes(one) && !one.endsWith('-proxy'));
    expect(new Set(awaitedBy(name))).toEqual(new Set(servers));
  });

  it('logs in with its own passwords: to Postgres with a role that owns nothing, and another one that migrates', () => {
    const { databaseUrl, migrationDatabaseUrl, postgresAlone } = configOf(name);
    const { POSTGRES_PASSWORD, POSTGRES_SERVICE_PASSWORD, REDIS_SERVICE_PASSWORD } = secrets;
    const [serving, owner] = [
      `stampede_service:${POSTGRES_SERVICE_PASSWORD}`,
      `stampede:${POSTGRES_PASSWORD}`,
    ];
    expect(databaseUrl).toContain(`//${serving}@`);
    expect(migrationDatabaseUrl).toBe(databaseUrl!.replace(serving, owner));
    const { environment, configs: files } = services[/@([\w-]+)/.exec(databaseUrl!)![1]!];
    const passwords = { POSTGRES_PASSWORD, SERVICE_PASSWORD: POSTGRES_SERVICE_PASSWORD };
    expect(environment).toMatchObject({ POSTGRES_USER: 'stampede', ...passwords });
    const scripts = files.map(({ source }: { source: string }) => contentOf(source)).join('');
    expect(scripts).toContain(`CREATE ROLE stampede_service LOGIN PASSWORD :'password';\n`);
    const found = JSON.stringify(services[name].environment).matchAll(/:\/\/([^@"]*)/g);
    const inRedis = postgresAlone ? [] : [`stampede:${REDIS_SERVICE_PASSWORD}`];
    expect(new Set([...found].map(([, one]) => one))).toEqual(new Set([serving, owner, ...inRedis]));
  });

  it('has no capability, and a read-only file system', () => {
    const { read_only, cap_drop, security_opt } = services[name];
    expect([read_only, cap_drop, security_opt]).toEqual([true, ['ALL'], ['no-new-privileges:true']]);
  });
});

it('waits for what becomes healthy or ends, and requires only what runs with it', () => {
  for (const waiting of names)
    for (const [name, { condition, required = true }] of Object.entries<Record<string, unknown>>(
      services[waiting].depends_on ?? {},
    )) {
      const { healthcheck, restart, profiles } = services[name];
      // A service without a healthcheck does its work and ends.
      expect(condition, name).toBe(healthcheck ? 'service_healthy' : 'service_completed_successfully');
      if (!healthcheck) expect(restart).toBe('no');
      const runsWith = !profiles || profiles.some((profile: string) => inProfile(profile).includes(waiting));
      expect(required, `${waiting} on ${name}`).toBe(runsWith);
    }
});

it('starts every server again after a reboot, except those of redlock, which come back empty', () => {
  const others = names.filter((name) => services[name].restart !== 'unless-stopped');
  expect(others).toEqual([...inProfile('redlock'), 'cluster-create']);
});

it('has an init process where a signal would find no handler: Node that still loads, a shell that waits', () => {
  const having = names.filter((name) => services[name].init === true);
  expect(having.sort()).toEqual([...stampedes, 'cluster-create', 'ha-postgres-standby'].sort());
});

it('publishes ports on the loopback only, each once', () => {
  for (const port of names.flatMap((name) => services[name].ports ?? []))
    expect(port).toMatch(/^127\.0\.0\.1:\d+:\d+$/);
  const ports = names.flatMap(portsOf);
  expect(new Set(ports).size).toBe(ports.length);
});

it('no two servers share a volume, and those that announce a name have it', () => {
  const volumes = names.flatMap((name) => services[name].volumes ?? []).map((one) => one.split(':')[0]);
  expect(new Set(volumes).size).toBe(volumes.length);
  for (const name of names)
    if (services[name].hostname || commandOf(name).includes('$HOSTNAME'))
      expect(services[name].hostname).toBe(name);
});

it('gives services files that exist, each used, with every $ escaped that is not a variable of Compose', () => {
  const given = names.flatMap((name) => services[name].configs ?? []).map(({ source }) => source);
  expect([...new Set(given)].sort()).toEqual(Object.keys(configs).sort());
  for (const { file } of Object.values<{ file?: string }>(configs))
    if (file !== undefined) expect(existsSync(root + file), file).toBe(true);
  const commands = names.map((name) => services[name].command);
  expect(JSON.stringify([configs, commands]).replaceAll('$$', '')).not.toContain('$');
});

it('servers are named where others need them: by services, Sentinels, replicas, the cluster and the proxy', () => {
  const having = (part: string) => names.filter((name) => name.startsWith(part));
  const hostsOf = (part: string, port: number) => having(part).map((host) => ({ host, port }));
  const redisOf = (name: string) => parseRedisUrl(configOf(name).redisUrl!);
  const sentinels = { kind: 'sentinel', service: 'sale', hosts: hostsOf('ha-sentinel', 26_379) };
  expect(sentinels.hosts).toHaveLength(3);
  for (const name of having('ha-stampede')) {
    expect(redisOf(name)).toMatchObject(sentinels);
    expect(parseDatabaseUrl(configOf(name).databaseUrl!)).toMatchObject({
      hosts: hostsOf('ha-postgres', 5_432),
    });
  }
  const cluster = { kind: 'cluster', hosts: hostsOf('cluster-redis', 6_379) };
  expect(redisOf('cluster-stampede')).toMatchObject(cluster);
  const numbers = having('cluster-redis').map((name) => name.replace(/\D/g, ''));
  expect(commandOf('cluster-create')).toContain(`for n in ${numbers.join(' ')}; do\n`);
  const named = JSON.stringify([services, configs]).matchAll(/(?<![\w-])((?:ha|cluster)-[\w-]+)[: ]\d{4}/g);
  expect(names).toEqual(expect.arrayContaining([...named].map(([, name]) => name)));
  const [, standby] = /synchronous_standby_names = '(\w+)'/.exec(contentOf('ha-postgres-init'))!;
  expect(commandOf('ha-postgres-standby')).toContain(` cluster_name=${standby} `);
});

it('servers of the profile ha keep their data, evict nothing, and Sentinels vote by their names', () => {
  const having = (part: string) => names.filter((name) => name.startsWith(part));
  for (const name of having('ha-redis')) {
    expect(commandOf(name)).toMatch(/exec redis-server .*--aclfile [\s\S]*--appendonly yes .*noeviction/);
    expect(services[name]!.volumes).toEqual([`${name}:/data`]);
  }
  for (const name of having('ha-sentinel')) {
    expect(commandOf(name)).toMatch(/\nsentinel monitor sale ha-redis-\w+ 6379 2\n/);
    expect(commandOf(name)).toContain('\nsentinel auth-pass sale $REDIS_PASSWORD\n');
    // Docker gives a restarted server another address.
    expect(commandOf(name)).toContain('sentinel resolve-hostnames yes\nsentinel announce-hostnames yes\n');
    expect(services[name]!.healthcheck!.test.join()).toContain('ckquorum sale');
  }
});

describe('secrets', () => {
  const variables = Object.keys(secrets);

  it('that are missing: Compose names the command that writes them', () => {
    for (const name of variables)
      expect(() => readCompose({ ...secrets, [name]: undefined })).toThrow(
        `required variable ${name} is missing a value: run scripts/secrets.sh`,
      );
  });

  it('are written once, each another one, and existing entries are kept', () => {
    const again = writeSecrets('ADMIN_TOKEN=mine\nREDIS_PASSWORD=\nSTRATEGY=unsafe');
    expect(again).toMatchObject({ ADMIN_TOKEN: 'mine', STRATEGY: 'unsafe' });
    expect(Object.keys(again).sort()).toEqual([...variables, 'STRATEGY'].sort());
    const values = variables.flatMap((name) => [secrets[name], again[name]]);
    expect(values).not.toContain('');
    expect(new Set(values).size).toBe(2 * variables.length);
    // npm start reads the same file.
    const read = { adminTokens: [expect.anything()], ticketKeys: [expect.anything()], databaseUrl: null };
    expect(parseEnv(secrets, choices)).toMatchObject(read);
  });
});

describe('the users of Redis', () => {
  const users: string = configs['redis-users'].content;

  it('are the same on every server with data', () => {
    const servers = names.filter((one) => services[one].image?.startsWith('redis:'));
    for (const name of servers.filter((one) => !/sentinel|create/.test(one))) {
      expect(services[name].configs, name).toMatchObject([{ source: 'redis-users' }]);
      expect(commandOf(name), name).toContain(`--aclfile ${services[name].configs[0].target} `);
    }
  });

  it('have the permissions that docs/how-to/deploy.md lists', () => {
    const deploying = text('docs/how-to/deploy.md');
    const rulesOf = (line: string) => line.match(/[+-]\S+/g)!;
    const [, listed] = /redis-cli ACL SETUSER stampede((?:.*\\\n)*.*)/.exec(deploying)!;
    const more = ['+client|setinfo', '+cluster|slots', '+cluster|info', '+client|setname', '+asking'];
    const [, service] = users.trim().split('\n');
    expect(rulesOf(service!).sort()).toEqual([...rulesOf(listed!), ...more].sort());
    expect(service).toContain(' ~stampede:* &stampede:* -@all ');
    expect(deploying.match(/(?<=[`'])\+[\w|]+(?=[`'])/g)).toEqual(expect.arrayContaining(more));
  });

  it('are accepted by a server, which rejects everyone else', async () => {
    const folder = await temporaryFolder('stampede-test-acl-');
    const { path: program, version } = (await findRedisServer())!;
    const file = path.join(folder, 'users.acl');
    // Redis 7.2 added this command.
    writeFileSync(file, Number.parseFloat(version) < 7.2 ? users.replace('+client|setinfo ', '') : users);
    const password = secrets.REDIS_PASSWORD!;
    const args = ['--appendonly', 'no', '--aclfile', file];
    const server = await startRedisServer({ folder: path.join(folder, 'redis'), program, password, args });
    onTestFinished(() => server.kill());
    const connect = (username: string, password: string) => {
      const { href } = Object.assign(new URL(server.url), { username, password });
      const options = { lazyConnect: true, retryStrategy: null, maxRetriesPerRequest: 0 };
      const redis = new Redis(href, options).on('error', () => {}); // of a refused connection
      onTestFinished(() => redis.disconnect());
      return redis;
    };
    const service = connect('stampede', secrets.REDIS_SERVICE_PASSWORD!);
    expect(await service.set('stampede:x', '1')).toBe('OK');
    await expect(service.set('other', '1')).rejects.toThrow('NOPERM');
    await expect(service.flushall()).rejects.toThrow('NOPERM');
    await expect(connect('', '').ping()).rejects.toThrow('NOAUTH');
  });
});
