import { describe, expect, it } from 'vitest';
import { parseDatabaseUrl } from '../../src/config/urls/database.ts';
import { serversOf } from '../../src/config/urls/hosts.ts';
import { parseRedisUrl } from '../../src/config/urls/redis.ts';

describe('an address of Postgres', () => {
  const at = (host: string, port = 5_432) => ({ host, port });

  const socket = 'postgresql://u:p@/db?host=%2Fcloud%2Fproject%3Aregion&port=5433';
  it.each([
    [socket, socket, []],
    ['postgresql://h/db?target_session_attrs=any', 'postgresql://h/db', []],
    ['postgresql://h/db?target_session_attrs=read-write', 'postgresql://h/db', [at('h')]],
    [
      'postgresql://u@/db?host=/run&target_session_attrs=primary',
      'postgresql://u@/db?host=%2Frun',
      [at('/run')],
    ],
    [
      'postgresql://u@a:1,b/db?target_session_attrs=primary&sslmode=require',
      'postgresql://u@a:1/db?sslmode=require',
      [at('a', 1), at('b')],
    ],
  ])('%s', (text, url, hosts) => {
    expect(parseDatabaseUrl(text)).toEqual({ url, hosts, schema: null, options: '' });
  });

  it('schema and options are apart from what node-postgres is given', () => {
    expect(parseDatabaseUrl('postgresql://h/db?schema=shop&sslmode=require&options=-c%20geqo%3Doff')).toEqual(
      {
        ...{ url: 'postgresql://h/db?sslmode=require', hosts: [] },
        ...{ schema: 'shop', options: '-c geqo=off' },
      },
    );
  });
});

describe('an address of Redis', () => {
  const sentinel = { kind: 'sentinel', service: 'main', db: 0, tls: false, username: null, password: null };
  const cluster = { kind: 'cluster', tls: false, username: null, password: null };
  const at = (host: string, port = 26_379) => ({ host, port });

  it.each([
    ['redis+sentinel://a:1,b:2,c:3/main', { ...sentinel, hosts: [at('a', 1), at('b', 2), at('c', 3)] }],
    ['redis+sentinel://[::1]:7,10.0.0.1/main/', { ...sentinel, hosts: [at('::1', 7), at('10.0.0.1')] }],
    ['rediss+sentinel://a/main/3', { ...sentinel, hosts: [at('a')], db: 3, tls: true }],
    ['redis+sentinel://:s%40crt@a/main', { ...sentinel, hosts: [at('a')], password: 's@crt' }],
    [
      'rediss+cluster://ann:p@a,b:7/',
      { ...cluster, hosts: [at('a', 6_379), at('b', 7)], tls: true, username: 'ann', password: 'p' },
    ],
  ])('%s', (text, address) => {
    expect(parseRedisUrl(text)).toEqual(address);
  });

  it.each(['redis://localhost:6379/2', 'rediss://ann:p@h'])('%s is left to the client', (url) => {
    expect(parseRedisUrl(url)).toEqual({ kind: 'server', url });
  });

  it('is shown without user and password', () => {
    expect(serversOf('rediss+sentinel://ann:p@a:1,b:2/main')).toBe('a:1,b:2/main');
    expect(serversOf('postgresql://u:p@h:1/db?sslmode=require')).toBe('h:1/db');
    expect(serversOf('redis://h:1/0')).toBe('h:1/0');
  });
});

it.each([
  [parseDatabaseUrl, 'postgresql://a,,b/db', /server ""/],
  [parseDatabaseUrl, 'postgresql://u:secret@a:1,b:99999/db', /server "b:99999"/],
  [parseDatabaseUrl, 'postgresql://u:secret/@a/db', /percent-encoded/],
  [parseDatabaseUrl, 'postgresql://u:secret@a:99999/db', /must be a URL/],
  [parseDatabaseUrl, 'postgresql://a,b/db?target_session_attrs=any', /needs read-write/],
  [parseDatabaseUrl, 'postgresql://a/db?schema=a%20b', /one word/],
  [parseRedisUrl, 'redis+sentinel://a:1', /must name the service/],
  [parseRedisUrl, 'redis+sentinel://:%zz@a/main', /not percent-encoded/],
  [parseRedisUrl, 'redis+sentinel://:secret@a b/main', /Sentinel "a b"/],
  [parseRedisUrl, 'redis+cluster://:secret@a:0', /server "a:0"/],
  [parseRedisUrl, 'redis+cluster://a/3', /a cluster has none/],
])('%o: %s is rejected, and no password is quoted', (parse, text, problem) => {
  const result = parse(text);
  expect(result).toMatch(problem);
  expect(result).not.toContain('secret');
});
