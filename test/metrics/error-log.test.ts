/** An error that repeats does not fill the log: on a fake clock, and in a service that lost its Redis. */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { errorLog } from '../../src/metrics/error-log.ts';
import { call } from '../support/client.ts';
import { startService } from '../support/service.ts';
import { envOf, openStoresWithRedis } from '../support/stores.ts';

const refused = (port: number) =>
  Object.assign(new Error(`connect ECONNREFUSED 127.0.0.1:${port}`), { code: 'ECONNREFUSED' });

describe('an error that repeats', () => {
  let lines: Record<string, unknown>[];
  let log: ReturnType<typeof errorLog>;
  beforeEach(() => {
    vi.useFakeTimers();
    lines = [];
    log = errorLog((details, message) => lines.push({ ...details, message }), 10_000);
  });
  afterEach(() => vi.useRealTimers());
  const fail = (operation: string, err: unknown, details = {}) =>
    log({ err, operation, details, message: `Operation failed: ${operation}` });

  it('is logged at once, then once per ten seconds with its count', () => {
    for (let port = 0; port < 1_000; port++) fail('ask-redis', refused(port), { port });
    expect(lines).toMatchObject([
      { operation: 'ask-redis', port: 0, message: 'Operation failed: ask-redis' },
    ]);
    expect(lines[0]).not.toHaveProperty('repeated');
    vi.advanceTimersByTime(10_000);
    expect(lines.slice(1)).toMatchObject([{ repeated: 999, port: 999 }]);
    fail('ask-redis', refused(1));
    expect(lines).toHaveLength(2);
    vi.advanceTimersByTime(10_000);
    expect(lines.slice(2)).toMatchObject([{ repeated: 1 }]);
  });

  it('is logged at once again after ten quiet seconds', () => {
    fail('ask-redis', refused(1));
    vi.advanceTimersByTime(10_000);
    fail('ask-redis', refused(1));
    expect(lines).toHaveLength(2);
    expect(lines[1]).not.toHaveProperty('repeated');
  });

  it('does not suppress errors with another code, message or operation', () => {
    fail('ask-redis', refused(1));
    fail('ask-redis', new Error('READONLY'));
    fail('ask-redis', new Error('LOADING'));
    fail('recover', refused(1));
    expect(lines).toHaveLength(4);
  });

  it('uses bounded memory when every message differs', () => {
    for (let i = 0; i < 10_000; i++) fail('ask-redis', new Error(`order ${i}`));
    expect(lines.length).toBeLessThan(300);
    expect(vi.getTimerCount()).toBeLessThan(300);
  });
});

it('a service without Redis counts its errors', async () => {
  await using stores = await openStoresWithRedis();
  await using service = await startService(envOf(stores));
  await stores.redisServer.kill();
  const counted = async () => {
    const { text } = (await call(`${service.url}/metrics`)).body;
    const line = /^stampede_store_errors_total\{store="redis",operation="redis-connection"\} (\d+)$/m.exec(
      String(text),
    );
    return Number(line?.[1] ?? 0);
  };
  await expect.poll(counted).toBeGreaterThanOrEqual(12);
});
