import { describe, expect, it } from 'vitest';
import { parseDatabaseUrl } from '../../../src/config/urls/database.ts';

const at = (host: string, port = 5_432) => ({ host, port });

describe('an address of Postgres', () => {
  it.each([
    'postgresql://u:p@h/db',
    'postgres://h:1/db?sslmode=require',
    'postgresql:///db?host=%2Frun%2Fpostgresql',
    'postgresql://u:p@/db?host=%2Fcloud%2Fproject%3Aregion&port=5433',
  ])('%s names one server, and stays as it is', (url) => {
    expect(parseDatabaseUrl(url)).toEqual({ url, hosts: [], schema: null, options: '' });
  });

  it.each([
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
    ['postgresql://[::1]:7,b/db', 'postgresql://[::1]:7/db', [at('::1', 7), at('b')]],
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

  it.each([
    ['mysql://h/db', /^must be a URL starting with postgresql/],
    ['postgresql://a,,b/db', /server ""/],
    ['postgresql://u:secret@a:1,b:99999/db', /server "b:99999"/],
    ['postgresql://u:secret/@a/db', /percent-encoded/],
    ['postgresql://u:secret@a:99999/db', /must be a URL/],
    ['postgresql://a,b/db?target_session_attrs=any', /needs read-write/],
    ['postgresql://a/db?schema=a%20b', /one word/],
  ])('%s is rejected, and no password is quoted', (text, problem) => {
    const result = parseDatabaseUrl(text);
    expect(result).toMatch(problem);
    expect(result).not.toContain('secret');
  });
});
