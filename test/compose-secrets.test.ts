/** The secrets of docker-compose.yml, and what its services may do. */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Redis } from 'ioredis';
import { describe, expect, it } from 'vitest';
import { temporaryFolder } from '../lab/kit/temporary-folder.ts';
import { parseEnv } from '../src/config/env.ts';
import { findRedisServer, startRedisServer } from '../src/local/redis-server.ts';
import { choices } from '../src/service/core.ts';
import { compose, configOf, readCompose, secrets, stampedes, writeSecrets } from './support/compose.ts';

const { services, configs } = compose;
const all = Object.entries(services);
const page = readFileSync(new URL('../docs/how-to/deploy.md', import.meta.url), 'utf8');

describe('secrets', () => {
  const variables = Object.keys(secrets);

  it.each(variables)('without %s, Compose names the command that writes it', (name) => {
    expect(() => readCompose({ ...secrets, [name]: undefined })).toThrow(
      `required variable ${name} is missing a value: run scripts/secrets.sh`,
    );
  });

  it('are written once, and existing entries are kept', () => {
    const again = writeSecrets('ADMIN_TOKEN=mine\nREDIS_PASSWORD=\nSTRATEGY=unsafe');
    expect(again).toMatchObject({ ADMIN_TOKEN: 'mine', STRATEGY: 'unsafe' });
    expect(Object.keys(again).sort()).toEqual([...variables, 'STRATEGY'].sort());
    for (const name of variables) {
      expect(again[name], name).not.toBe(secrets[name]);
      expect(again[name], name).not.toBe('');
    }
  });

  it('do not stop npm start, which reads the same file', () => {
    const { adminTokens, ticketKeys, databaseUrl } = parseEnv(secrets, choices);
    expect([adminTokens, ticketKeys]).toEqual([[expect.anything()], [expect.anything()]]);
    expect(databaseUrl).toBeNull();
  });

  it('are the only passwords, and each service has its own', () => {
    expect(new Set(Object.values(secrets)).size).toBe(variables.length);
    const { POSTGRES_PASSWORD, POSTGRES_SERVICE_PASSWORD, REDIS_SERVICE_PASSWORD } = secrets;
    for (const name of stampedes) {
      const urls = Object.values(services[name]!.environment)
        .flatMap((value) => value.split(/,(?=redis:)/))
        .filter((value) => value.includes('://'));
      const passwords = urls.flatMap((url) => /:\/\/([^@/]*)@/.exec(url)?.[1] ?? [`none in ${url}`]);
      expect([...new Set(passwords)].sort()).toEqual(
        [
          `stampede:${POSTGRES_PASSWORD}`,
          ...(configOf(name).postgresAlone ? [] : [`stampede:${REDIS_SERVICE_PASSWORD}`]),
          `stampede_service:${POSTGRES_SERVICE_PASSWORD}`,
        ].sort(),
      );
    }
    for (const [name, { image, environment, command }] of all) {
      const known = JSON.stringify([environment ?? {}, command ?? []]);
      if (image?.startsWith('redis:')) expect(known, name).toContain(secrets.REDIS_PASSWORD);
      if (image?.startsWith('postgres:')) expect(known, name).toContain(secrets.POSTGRES_PASSWORD);
    }
  });
});

it('runs the service without capabilities, on a read-only file system', () => {
  for (const name of stampedes)
    expect(services[name], name).toMatchObject({
      read_only: true,
      cap_drop: ['ALL'],
      security_opt: ['no-new-privileges:true'],
    });
  for (const name of stampedes) expect(services[name]).not.toHaveProperty('tmpfs');
});

describe('the users of Redis', () => {
  const users = configs['redis-users']!.content!;
  const rulesOf = (line: string) => line.match(/[+-]\S+/g)!;

  it('are the same on every server with data', () => {
    const servers = all.filter(
      ([name, { image }]) => image?.startsWith('redis:') && !/sentinel|create/.test(name),
    );
    expect(servers).toHaveLength(15);
    for (const [name, { command, configs: files }] of servers) {
      const [{ source, target }] = files as [{ source: string; target: string }];
      expect(source, name).toBe('redis-users');
      expect(command!.join(' '), name).toContain(`--aclfile ${target} `);
    }
  });

  it('have the permissions that docs/how-to/deploy.md lists', () => {
    const [, listed] = /redis-cli ACL SETUSER stampede((?:.*\\\n)*.*)/.exec(page)!;
    const more = ['+cluster|slots', '+asking'];
    const [, service] = users.trim().split('\n');
    expect(rulesOf(service!).sort()).toEqual([...rulesOf(listed!), ...more].sort());
    expect(service).toContain(' ~stampede:* &stampede:* -@all ');
    for (const rule of more) expect(page).toContain(`\`${rule}\``);
  });

  it('are accepted by a server, which rejects everyone else', async () => {
    const folder = await temporaryFolder('stampede-test-acl-');
    const { path: program, version } = (await findRedisServer())!;
    // Redis 7.2 added this command.
    const known = Number.parseFloat(version) < 7.2 ? users.replace('+client|setinfo ', '') : users;
    const file = path.join(folder, 'users.acl');
    writeFileSync(file, known);
    const { REDIS_PASSWORD, REDIS_SERVICE_PASSWORD } = secrets;
    const server = await startRedisServer({
      folder: path.join(folder, 'redis'),
      program,
      password: REDIS_PASSWORD!,
      args: ['--appendonly', 'no', '--aclfile', file],
    });
    const connect = (username: string, password: string) => {
      const url = Object.assign(new URL(server.url), { username, password });
      return new Redis(url.href, { lazyConnect: true, retryStrategy: null, maxRetriesPerRequest: 0 });
    };
    const service = connect('stampede', REDIS_SERVICE_PASSWORD!);
    const stranger = connect('', '');
    for (const one of [service, stranger]) one.on('error', () => {}); // errors of refused connections
    try {
      expect(await service.set('stampede:x', '1')).toBe('OK');
      await expect(service.set('other', '1')).rejects.toThrow('NOPERM');
      await expect(service.flushall()).rejects.toThrow('NOPERM');
      await expect(stranger.ping()).rejects.toThrow('NOAUTH');
    } finally {
      for (const one of [service, stranger]) one.disconnect();
      await server.kill();
      rmSync(folder, { recursive: true });
    }
  });
});
