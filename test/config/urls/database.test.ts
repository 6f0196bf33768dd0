import { describe, expect, it } from 'vitest';
import { parseDatabaseUrl } from '../../../src/config/urls/database.ts';

const at = (host: string, port = 5_432) => ({ host, port });

describe('an address of Postgres', () => {
  it.each([
    'postgresql://u:p@h/db',
    'postgres://h:1/db?sslmode=require&options=-c%20geqo%3Doff',
    'postgresql:///db?host=/run/postgresql',
    'postgresql://h/db?target_session_attrs=any',
  ])('%s names one server, and stays as it is', (url) => {
    expect(parseDatabaseUrl(url)).toEqual({ url, hosts: [] });
  });

  it.each([
    ['postgresql://h/db?target_session_attrs=read-write', 'postgresql://h/db', [at('h')]],
    [
      'postgresql://u@a:1,b/db?target_session_attrs=primary&sslmode=require',
      'postgresql://u@a:1/db?sslmode=require',
      [at('a', 1), at('b')],
    ],
    ['postgresql://[::1]:7,b/db', 'postgresql://[::1]:7/db', [at('::1', 7), at('b')]],
  ])('%s', (text, url, hosts) => {
    expect(parseDatabaseUrl(text)).toEqual({ url, hosts });
  });

  it.each([
    ['mysql://h/db', /^must be a URL starting with postgresql/],
    ['postgresql://a,,b/db', /server ""/],
    ['postgresql://u:secret@a:1,b:99999/db', /server "b:99999"/],
    ['postgresql://u:secret/@a/db', /percent-encoded/],
    ['postgresql://u:secret@a:99999/db', /must be a URL/],
    ['postgresql://a,b/db?target_session_attrs=any', /needs read-write/],
  ])('%s is rejected, and no password is quoted', (text, problem) => {
    const result = parseDatabaseUrl(text);
    expect(result).toMatch(problem);
    expect(result).not.toContain('secret');
  });
});
