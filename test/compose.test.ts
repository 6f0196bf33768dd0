/** docker-compose.yml, read without a Docker engine: its variables are Stampede's, and its parts fit together. */
import { existsSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { parse } from 'yaml';
import { parseEnv } from '../src/config/env.ts';

const root = new URL('../', import.meta.url);
const text = (file: string) => readFileSync(new URL(file, root), 'utf8');

interface Service {
  readonly environment: Record<string, string>;
  readonly healthcheck: object;
  readonly depends_on?: Record<string, { condition: string }>;
}
const services = (parse(text('docker-compose.yml')) as { services: Record<string, Service> }).services;

it('gives the service a configuration that it takes', () => {
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

it('waits for healthy stores', () => {
  for (const [name, { condition }] of Object.entries(services.stampede!.depends_on!)) {
    expect(condition).toBe('service_healthy');
    expect(services[name]!.healthcheck).toBeDefined();
  }
});

it('copies into the image what is there', () => {
  for (const [, sources] of text('Dockerfile').matchAll(/^COPY (?!--from)(.+) \S+$/gm)) {
    for (const source of sources!.split(' ')) expect(existsSync(new URL(source, root)), source).toBe(true);
  }
});
