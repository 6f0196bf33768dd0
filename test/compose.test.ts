/** docker-compose.yml, read without a Docker engine: its variables are Stampede's, and its parts fit together. */
import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { youngGeneration } from '../bench/kit/service.ts';
import { parseEnv } from '../src/config/env.ts';

const root = new URL('../', import.meta.url);
const text = (file: string) => readFileSync(new URL(file, root), 'utf8');

interface Service {
  readonly image?: string;
  readonly profiles?: readonly string[];
  readonly command?: readonly string[];
  readonly environment: Record<string, string>;
  readonly ports?: readonly string[];
  readonly volumes?: readonly string[];
  readonly healthcheck: { readonly test: readonly string[] };
  readonly depends_on?: Record<string, { condition: string; required?: boolean }>;
}
interface Compose {
  readonly services: Record<string, Service>;
  readonly volumes: Record<string, null>;
}
// Compose merges `<<`, which YAML 1.2 does not.
const { services, volumes } = parse(text('docker-compose.yml'), { merge: true }) as Compose;
const all = Object.entries(services);
const inProfile = (profile: string) => all.filter(([, { profiles }]) => profiles?.includes(profile));
/** The services whose profile is not on are not there. */
const always = all.filter(([, { profiles }]) => profiles === undefined).map(([name]) => name);

it('passes the service a valid configuration', () => {
  const raw = services.stampede!.environment;
  const env = Object.fromEntries(
    Object.entries(raw).map(([name, value]) => [name, value.replace(/^\$\{\w+:-(.*)\}$/, '$1')]),
  );
  const config = parseEnv(env, { strategies: ['lua'], locks: ['redis'] });
  expect(config).toMatchObject({ host: '0.0.0.0', strategy: 'lua', confirm: 'durable' });
  const known = text('.env.example');
  for (const name of Object.keys(raw)) expect(known).toContain(`${name}=`);
  expect(new URL(config.databaseUrl!).hostname).toBe('postgres');
  expect(new URL(config.redisUrl!).hostname).toBe('redis');
});

it('waits for healthy stores, and for the servers of a profile that is on', () => {
  const { depends_on } = services.stampede!;
  expect(Object.keys(depends_on!).sort()).toEqual(
    all
      .map(([name]) => name)
      .filter((name) => name !== 'stampede')
      .sort(),
  );
  for (const [, { depends_on }] of all) {
    for (const [name, { condition, required }] of Object.entries(depends_on ?? {})) {
      expect(condition).toBe('service_healthy');
      expect(services[name]!.healthcheck.test.length).toBeGreaterThan(1);
      expect(required ?? true, name).toBe(always.includes(name));
    }
  }
});

it('pins every image, and starts the same services without a profile', () => {
  expect(always.sort()).toEqual(['postgres', 'redis', 'stampede']);
  for (const [name, { image }] of all) if (name !== 'stampede') expect(image).toMatch(/^[a-z]+:\d+(\.\d+)*$/);
  // Locks count on the same Redis everywhere.
  const redis = all.flatMap(([, { image }]) => (image?.startsWith('redis:') ? [image] : []));
  expect(new Set(redis).size).toBe(1);
});

it('publishes ports on the loopback only, each once', () => {
  const ports = all.flatMap(([, service]) => service.ports ?? []);
  for (const port of ports) expect(port).toMatch(/^127\.0\.0\.1:\d+:\d+$/);
  expect(new Set(ports.map((port) => port.split(':')[1])).size).toBe(ports.length);
});

it('keeps data in volumes that it declares', () => {
  const named = all.flatMap(([, service]) => (service.volumes ?? []).map((volume) => volume.split(':')[0]));
  expect(named.sort()).toEqual(Object.keys(volumes).sort());
});

describe('the servers of locks', () => {
  const { REDLOCK_URLS, ZOOKEEPER_URL } = services.stampede!.environment;
  const config = parseEnv({ REDLOCK_URLS, ZOOKEEPER_URL }, { strategies: ['lua'], locks: ['redis'] });
  /** What a service has from the host: its published ports. */
  const published = (name: string) => services[name]!.ports!.map((port) => Number(port.split(':')[1]));

  it('of redlock are five, on their own, and those of REDLOCK_URLS', () => {
    const names = inProfile('redlock').map(([name]) => name);
    expect(names).toHaveLength(5);
    expect(config.redlockUrls.map((one) => new URL(one).hostname)).toEqual(names);
    for (const [index, name] of names.entries()) {
      const { command, ports, volumes } = services[name]!;
      expect(ports![0]).toMatch(new RegExp(`:${new URL(config.redlockUrls[index]!).port}$`));
      expect(command).not.toContain('--replicaof');
      expect(volumes).toBeUndefined();
    }
  });

  it('of redis-wait are a replica of the Redis that is always there', () => {
    const [[, replica]] = inProfile('replica') as [[string, Service]];
    const at = replica.command!.indexOf('--replicaof');
    expect(replica.command!.slice(at, at + 3)).toEqual(['--replicaof', 'redis', '6379']);
    expect(replica.healthcheck.test.join()).toContain('master_link_status:up');
  });

  it('of zookeeper are those of ZOOKEEPER_URL', () => {
    expect(inProfile('zookeeper').map(([name]) => name)).toEqual([config.zookeeperUrl!.split(':')[0]]);
    expect(services.zookeeper!.ports![0]).toMatch(new RegExp(`:${config.zookeeperUrl!.split(':')[1]}$`));
  });

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

it('copies only files that exist into the image', () => {
  for (const [, sources] of text('Dockerfile').matchAll(/^COPY (?!--from)(.+) \S+$/gm)) {
    for (const source of sources!.split(' ')) expect(existsSync(new URL(source, root)), source).toBe(true);
  }
});

it('starts the service as npm start does, and as the bench does', () => {
  const { scripts } = JSON.parse(text('package.json')) as { scripts: { start: string } };
  const [, ...command] = scripts.start.split(' ');
  expect(text('Dockerfile')).toContain(`CMD ${JSON.stringify(command).replaceAll(',', ', ')}`);
  expect(command).toContain(youngGeneration);
});
