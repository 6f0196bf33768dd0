import { describe, expect, it } from 'vitest';
import { parseRedisUrl, serversOf } from '../../src/config/redis-url.ts';

const sentinel = { kind: 'sentinel', service: 'main', db: 0, tls: false, username: null, password: null };
const at = (host: string, port = 26_379) => ({ host, port });

describe('an address of Redis', () => {
  it.each([
    ['redis+sentinel://a/main', { ...sentinel, sentinels: [at('a')] }],
    ['redis+sentinel://a:1,b:2,c:3/main', { ...sentinel, sentinels: [at('a', 1), at('b', 2), at('c', 3)] }],
    ['redis+sentinel://[::1]:7,10.0.0.1/main/', { ...sentinel, sentinels: [at('::1', 7), at('10.0.0.1')] }],
    ['rediss+sentinel://a/main/3', { ...sentinel, sentinels: [at('a')], db: 3, tls: true }],
    ['redis+sentinel://:s%40crt@a/main', { ...sentinel, sentinels: [at('a')], password: 's@crt' }],
    ['redis+sentinel://ann:p@a/main', { ...sentinel, sentinels: [at('a')], username: 'ann', password: 'p' }],
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
