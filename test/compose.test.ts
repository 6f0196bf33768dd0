/** docker-compose.yml, read without a Docker engine: its variables are Stampede's, and its parts fit together. */
import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { youngGeneration } from '../lab/service.ts';
import { parseDatabaseUrl } from '../src/config/urls/database.ts';
import { parseRedisUrl } from '../src/config/urls/redis.ts';
import { compose, configOf, stampedes } from './support/compose.ts';

const root = new URL('../', import.meta.url);
const text = (file: string) => readFileSync(new URL(file, root), 'utf8');

const { services, configs } = compose;
const all = Object.entries(services);
const inProfile = (profile: string) => all.filter(([, { profiles }]) => profiles?.includes(profile));
/** Services without a profile always run. */
const always = all.filter(([, { profiles }]) => profiles === undefined).map(([name]) => name);
/** Each of these profiles is a separate deployment; the names of its services start with the profile. */
const deployments = ['ha', 'cluster', 'alone'];
const deploymentOf = (name: string) => deployments.find((profile) => name.startsWith(`${profile}-`));
/** The services of this profile only watch others. */
const isObserver = (name: string) => services[name]!.profiles?.includes('observe') === true;
/** A text in which Compose has replaced `$$`. */
const unescaped = (text: string) => text.replaceAll('$$', '$');
const contentOf = (config: string) => unescaped(configs[config]!.content!);
const commandOf = (name: string) => unescaped(services[name]!.command!.join(' '));
const named = (names: readonly string[], port: number) => names.map((host) => ({ host, port }));

it.each(stampedes)('passes a service a valid configuration: %s', (name) => {
  const config = configOf(name);
  const strategy = deploymentOf(name) === 'alone' ? 'group-commit' : 'lua';
  expect(config).toMatchObject({ host: '0.0.0.0', strategy, confirm: 'durable' });
  expect(config.adminTokens).toHaveLength(1);
  const known = text('.env.example');
  for (const variable of Object.keys(services[name]!.environment)) expect(known).toContain(`${variable}=`);
});

it('waits for healthy stores, and for the servers of a profile that is on', () => {
  expect(Object.keys(services.stampede!.depends_on!).sort()).toEqual(
    all
      .map(([name]) => name)
      .filter((name) => name !== 'stampede' && deploymentOf(name) === undefined && !isObserver(name))
      .sort(),
  );
  for (const [waiting, { depends_on }] of all) {
    for (const [name, { condition, required }] of Object.entries(depends_on ?? {})) {
      const { healthcheck, restart } = services[name]!;
      // A service without a healthcheck does its work and ends.
      const ends = healthcheck === undefined;
      expect(condition, name).toBe(ends ? 'service_completed_successfully' : 'service_healthy');
      if (ends) expect(restart).toBe('no');
      else expect(healthcheck.test.length).toBeGreaterThan(1);
      const isThere = always.includes(name) || deploymentOf(waiting) !== undefined || isObserver(waiting);
      expect(required ?? true, `${waiting} on ${name}`).toBe(isThere);
    }
  }
});

it('pins every image, and starts the same services without a profile', () => {
  expect(always.sort()).toEqual(['postgres', 'redis', 'stampede']);
  expect(stampedes).toEqual([
    'stampede',
    'ha-stampede-1',
    'ha-stampede-2',
    'cluster-stampede',
    'alone-stampede',
  ]);
  for (const [name, { image }] of all)
    if (!stampedes.includes(name)) expect(image, name).toMatch(/^([a-z]+\/)?[a-z]+:v?\d+(\.\d+)*$/);
  // Locks rely on the same Redis everywhere, and a standby on the same Postgres.
  for (const product of ['redis', 'postgres']) {
    const images = all.flatMap(([, { image }]) => (image?.startsWith(`${product}:`) ? [image] : []));
    expect(new Set(images).size).toBe(1);
  }
});

it.each(stampedes)('gives a service a role that owns nothing, and another one that migrates: %s', (name) => {
  const { databaseUrl, migrationDatabaseUrl } = configOf(name);
  const [serving, migrating] = [databaseUrl!, migrationDatabaseUrl!].map((url) => {
    const address = parseDatabaseUrl(url);
    return typeof address === 'string' ? null : { ...address, url: new URL(address.url) };
  });
  expect(serving!.hosts).toEqual(migrating!.hosts);
  const host = serving!.url.hostname;
  expect(migrating!.url).toMatchObject({ host: serving!.url.host, pathname: serving!.url.pathname });
  const { environment, configs: files } = services[host]!;
  const { username, password } = serving!.url;
  expect(password).toBe(environment.SERVICE_PASSWORD);
  expect([migrating!.url.username, migrating!.url.password]).toEqual([
    environment.POSTGRES_USER,
    environment.POSTGRES_PASSWORD,
  ]);
  expect(username).not.toBe(environment.POSTGRES_USER);
  for (const { target } of files!) expect(target).toMatch(/^\/docker-entrypoint-initdb\.d\/.+\.sh$/);
  const scripts = files!.map(({ source }) => contentOf(source)).join('\n');
  expect(scripts).toContain(`CREATE ROLE ${username} LOGIN PASSWORD :'password';\n`);
  expect(scripts).toContain('-v password="$SERVICE_PASSWORD"');
});

it('publishes ports on the loopback only, each once', () => {
  const ports = all.flatMap(([, service]) => service.ports ?? []);
  for (const port of ports) expect(port).toMatch(/^127\.0\.0\.1:\d+:\d+$/);
  expect(new Set(ports.map((port) => port.split(':')[1])).size).toBe(ports.length);
});

describe('the servers of locks', () => {
  /** A service's published ports, on the host. */
  const published = (name: string) => services[name]!.ports!.map((port) => Number(port.split(':')[1]));

  it('have the addresses in docs/how-to/choose-a-lock.md by which a service on the host reaches them', () => {
    const page = text('docs/how-to/choose-a-lock.md');
    const urls = inProfile('redlock')
      .flatMap(([name]) => published(name))
      .map((port) => `redis://127.0.0.1:${port}`);
    expect(page).toContain(`REDLOCK_URLS=${urls.join(',')}`);
    expect(page).toContain(`ZOOKEEPER_URL=127.0.0.1:${published('zookeeper')[0]}`);
    expect(page).toContain(`--port ${published('redis-replica')[0]} `);
  });

  it.each(['redlock', 'replica', 'zookeeper'])('are started with the lock by one command: %s', (profile) => {
    const lock = profile === 'replica' ? 'redis-wait' : profile;
    const command = `STRATEGY=global-lock LOCK=${lock} docker compose --profile ${profile} up`;
    for (const file of ['docker-compose.yml', 'docs/how-to/choose-a-lock.md'])
      expect(text(file)).toContain(command);
    expect(inProfile(profile).length).toBeGreaterThan(0);
  });
});

describe.each(deployments)('the profile %s', (profile) => {
  const names = inProfile(profile).map(([name]) => name);
  const own = stampedes.filter((name) => names.includes(name));

  it('waits for all its servers before a service starts', () => {
    const serversBefore = (name: string): string[] =>
      Object.keys(services[name]!.depends_on ?? {}).flatMap((other) => [other, ...serversBefore(other)]);
    const servers = names.filter((name) => !own.includes(name) && !name.endsWith('-proxy'));
    for (const name of own) expect([...new Set(serversBefore(name))].sort()).toEqual(servers.sort());
  });
});

describe('the profile ha', () => {
  const names = inProfile('ha').map(([name]) => name);
  const having = (part: string) => names.filter((name) => name.startsWith(`ha-${part}`));

  it('has three Sentinels, two of which must agree on the primary that they monitor', () => {
    const sentinels = having('sentinel');
    const primary = having('redis').find((name) => services[name]!.environment?.FIRST_ROLE === undefined)!;
    for (const name of having('stampede'))
      expect(parseRedisUrl(configOf(name).redisUrl!)).toMatchObject({
        kind: 'sentinel',
        service: 'sale',
        hosts: named(sentinels, 26_379),
      });
    expect(sentinels).toHaveLength(3);
    for (const name of sentinels) {
      const command = commandOf(name);
      expect(command).toContain(`\nsentinel monitor sale ${primary} 6379 2\n`);
      expect(command).toContain('\nsentinel auth-pass sale $REDIS_PASSWORD\n');
      // Docker gives a restarted server another address.
      expect(command).toContain('sentinel resolve-hostnames yes\nsentinel announce-hostnames yes\n');
      expect(command).toContain('sentinel announce-ip $HOSTNAME\n');
      expect(services[name]!.hostname).toBe(name);
      expect(services[name]!.healthcheck!.test.join()).toContain('ckquorum sale');
    }
  });

  it('has a primary of Redis and a replica, which keep their data and are known by their names', () => {
    const [primary, replica, ...others] = having('redis');
    expect(others).toEqual([]);
    expect(services[primary!]!.environment).not.toHaveProperty('FIRST_ROLE');
    expect(services[replica!]!.environment.FIRST_ROLE).toBe(`replicaof ${primary} 6379`);
    for (const name of [primary!, replica!]) {
      const command = commandOf(name);
      expect(command).toMatch(/^sh -c \[ -f redis\.conf \] \|\| echo "\$FIRST_ROLE" >redis\.conf\n/);
      expect(command).toMatch(
        /exec redis-server redis\.conf .*--aclfile [\s\S]*--appendonly yes .*noeviction/,
      );
      expect(command).toContain('--replica-announce-ip $HOSTNAME');
      expect(services[name]!.hostname).toBe(name);
      expect(services[name]!.volumes).toEqual([`${name}:/data`]);
    }
  });

  it('has a primary of Postgres that waits for its standby', () => {
    const [primary, standby, ...others] = having('postgres');
    expect(others).toEqual([]);
    for (const name of having('stampede'))
      expect(parseDatabaseUrl(configOf(name).databaseUrl!)).toMatchObject({
        hosts: named([primary!, standby!], 5_432),
      });
    const { source } = services[primary!]!.configs!.find((file) => file.source.startsWith('ha-'))!;
    const script = contentOf(source);
    expect(script).toContain('host replication all all scram-sha-256');
    const [, name] = /ALTER SYSTEM SET synchronous_standby_names = '(\w+)'/.exec(script)!;
    const { POSTGRES_USER } = services[primary!]!.environment;
    const command = commandOf(standby!);
    expect(command).toContain(
      `pg_basebackup -d postgresql://${POSTGRES_USER}:$POSTGRES_PASSWORD@${primary}:5432 `,
    );
    // A promoted standby must not wait for itself.
    expect(command).toContain(`exec postgres -c cluster_name=${name} -c synchronous_standby_names=\n`);
    expect(services[primary!]!.command).toBeUndefined();
  });
});

describe('the profile cluster', () => {
  const nodes = inProfile('cluster').flatMap(([name]) => (/-redis-/.test(name) ? [name] : []));

  it('has six servers, which the service and the command that forms the cluster name', () => {
    expect(nodes).toHaveLength(6);
    expect(parseRedisUrl(configOf('cluster-stampede').redisUrl!)).toMatchObject({
      kind: 'cluster',
      hosts: named(nodes, 6_379),
    });
    const command = commandOf('cluster-create');
    const [, numbers] = /for n in ([\d ]+); do\n.*getent hosts cluster-redis-\$n\)/.exec(command)!;
    expect(numbers!.split(' ').map((n) => `cluster-redis-${n}`)).toEqual(nodes);
    expect(command).toMatch(
      /--cluster create "\$\{nodes\[@\]\/%\/:6379\}" --cluster-replicas 1 --cluster-yes\n/,
    );
    expect(Object.keys(services['cluster-create']!.depends_on!)).toEqual(nodes);
  });
});

it('gives services files that exist', () => {
  for (const [name, { content, file }] of Object.entries(configs)) {
    expect(content === undefined, name).toBe(file !== undefined);
    if (file !== undefined) expect(existsSync(new URL(file, root)), file).toBe(true);
  }
});

it('escapes every $ that is not a variable of Compose', () => {
  const texts = [
    ...Object.values(configs).map(({ content = '' }) => content),
    ...all.flatMap(([, { command }]) => command ?? []),
  ];
  for (const text of texts) expect(text.replaceAll('$$', '')).not.toContain('$');
});

it('declares the files that it gives to services, and no other', () => {
  const given = all.flatMap(([, service]) => (service.configs ?? []).map(({ source }) => source));
  expect([...new Set(given)].sort()).toEqual(Object.keys(configs).sort());
});

it('starts the service as npm start does, and as the bench does', () => {
  const { scripts } = JSON.parse(text('package.json')) as { scripts: { start: string } };
  const [, ...command] = scripts.start.split(' ');
  expect(text('Dockerfile')).toContain(`CMD ${JSON.stringify(command).replaceAll(',', ', ')}`);
  expect(command).toContain(youngGeneration);
});
