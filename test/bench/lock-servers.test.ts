import { describe, expect, it } from 'vitest';
import { lockVariable, missingLockServers } from '../../bench/kit/lock-servers.ts';

describe('the servers of locks', () => {
  it('are named by a variable of their own, where a lock has any', () => {
    expect(lockVariable('redlock')).toBe('REDLOCK_URLS');
    expect(lockVariable('zookeeper')).toBe('ZOOKEEPER_URL');
    // The stores of a trial are the bench's own, whatever the environment says.
    for (const lock of ['redis', 'redis-fair', 'postgres-row', 'no-such-lock', null])
      expect(lockVariable(lock)).toBeNull();
  });

  it('are asked for when nobody named them, each with its variable', () => {
    const locks = ['redis', 'redlock', 'postgres-row', 'zookeeper', 'no-such-lock'];
    const mistakes = missingLockServers(locks, { ZOOKEEPER_URL: '' });
    expect(mistakes).toEqual([
      expect.stringMatching(/^--locks redlock needs REDLOCK_URLS: .*at least three/),
      expect.stringMatching(/^--locks zookeeper needs ZOOKEEPER_URL: .*host:port/),
    ]);
    const env = { REDLOCK_URLS: 'redis://a,redis://b,redis://c', ZOOKEEPER_URL: 'a:2181' };
    expect(missingLockServers(locks, env)).toEqual([]);
  });
});
