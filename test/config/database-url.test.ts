import { describe, expect, it } from 'vitest';
import { parseDatabaseUrl, serversOf } from '../../src/config/database-url.ts';

const at = (host: string, port = 5_432) => ({ host, port });

describe('an address of Postgres', () => {
  it.each([
    ['postgresql://u:p@h/db', 'postgresql://u:p@h/db', [at('h')], false],
    ['postgres://h:1/db?sslmode=require', 'postgres://h:1/db?sslmode=require', [at('h', 1)], false],
    ['postgresql://h/db?target_session_attrs=read-write', 'postgresql://h/db', [at('h')], true],
    [
      'postgresql://u@a:1,b/db?target_session_attrs=primary',
      'postgresql://u@a:1/db',
      [at('a', 1), at('b')],
      true,
    ],
    ['postgresql://[::1]:7,b/db', 'postgresql://[::1]:7/db', [at('::1', 7), at('b')], true],
  ])('%s', (text, url, hosts, readWrite) => {
    expect(parseDatabaseUrl(text)).toEqual({ url, hosts, readWrite });
  });

  it.each([
    ['mysql://h/db', /^must be a URL starting with postgresql/],
    ['postgresql://a,,b/db', /server ""/],
    ['postgresql://u:secret@a:99999/db', /server "a:99999"/],
    ['postgresql://a,b/db?target_session_attrs=any', /needs read-write/],
  ])('%s is rejected, and no password is quoted', (text, problem) => {
    const result = parseDatabaseUrl(text);
    expect(result).toMatch(problem);
    expect(result).not.toContain('secret');
  });

  it('is shown without protocol, user, password and parameters', () => {
    expect(serversOf('postgresql://u:p@a:1,b:2/db?sslmode=require')).toBe('a:1,b:2/db');
    expect(serversOf('redis://h:1/0')).toBe('h:1/0');
  });
});
