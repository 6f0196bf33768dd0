import { describe, expect, it } from 'vitest';
import { serversOf } from '../../../src/config/urls/hosts.ts';
import { parseRedisUrl } from '../../../src/config/urls/redis.ts';

const sentinel = { kind: 'sentinel', service: 'main', db: 0, tls: false, username: null, password: null };
const cluster = { kind: 'cluster', tls: false, username: null, password: null };
const at = (host: string, port = 26_379) => ({ host, port });

describe('an address of Redis', () => {
  it.each([
    ['redis+sentinel://a/main', { ...sentinel, hosts: [at('a')] }],
    ['redis+sentinel://a:1,b:2,c:3/main', { ...sentinel, hosts: [at('a', 1), at('b', 2), at('c', 3)] }],
    ['redis+sentinel://[::1]:7,10.0.0.1/main/', { ...sentinel, hosts: [at('::1', 7), at('10.0.0.1')] }],
    ['rediss+sentinel://a/main/3', { ...sentinel, hosts: [at('a')], db: 3, tls: true }],
    ['redis+sentinel://:s%40crt@a/main', { ...sentinel, hosts: [at('a')], password: 's@crt' }],
    ['redis+sentinel://ann:p@a/main', { ...sentinel, hosts: [at('a')], username: 'ann', password: 'p' }],
    ['redis+cluster://a,b:7', { ...cluster, hosts: [at('a', 6_379), at('b', 7)] }],
    [
      'rediss+cluster://ann:p@a/',
      { ...cluster, hosts: [at('a', 6_379)], tls: true, username: 'ann', password: 'p' },
    ],
  ])('%s', (text, address) => {
    expect(parseRedisUrl(text)).toEqual(address);
  });

  it.each(['redis://localhost:6379/2', 'rediss://ann:p@h'])('%s is left to the client', (url) => {
    expect(parseRedisUrl(url)).toEqual({ kind: 'server', url });
  });

  it.each([
    ['http://a', /^must be redis:\/\//],
    ['redis://', /^must be redis:\/\//],
    ['redis+sentinel://a,,b/main', /Sentinel ""/],
    ['redis+sentinel://a:70000/main', /Sentinel "a:70000"/],
    ['redis+sentinel://a:1', /must name the service/],
    ['redis+sentinel://:%zz@a/main', /not percent-encoded/],
    ['redis+sentinel://:secret@a b/main', /Sentinel "a b"/],
    ['redis+cluster://:secret@a:0', /server "a:0"/],
    ['redis+cluster://a/3', /a cluster has none/],
  ])('%s is rejected, and no password is quoted', (text, problem) => {
    const result = parseRedisUrl(text);
    expect(result).toMatch(problem);
    expect(result).not.toContain('secret');
  });

  it('is shown without user and password', () => {
    expect(serversOf('rediss+sentinel://ann:p@a:1,b:2/main')).toBe('a:1,b:2/main');
    expect(serversOf('postgresql://u:p@h:1/db?sslmode=require')).toBe('h:1/db');
    expect(serversOf('redis://h:1/0')).toBe('h:1/0');
  });
});
