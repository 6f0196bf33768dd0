/** The log on a terminal. Every other test that starts a service reads the JSON form. */
import { PassThrough } from 'node:stream';
import { expect, it } from 'vitest';
import { createLogger } from '../../src/metrics/logger.ts';

it('writes one readable line per event, the message before the fields, and no secrets', async () => {
  const terminal = new PassThrough();
  const log = await createLogger({ level: 'info', worker: null, terminal });
  log.info({ port: 3000 }, 'listening');
  const err = Object.assign(new Error('WRONGPASS'), { command: { args: ['hunter2'] } });
  log.error({ err, operation: 'redis-connection' }, 'Operation failed: redis-connection');
  log.error({ err: 'the receiver answered 500' }, 'Attempt at a task failed');
  const text = String(terminal.read());
  expect(text.split('\n')[0]).toMatch(/^\[\d\d:\d\d:\d\d\] INFO: listening \{"port":3000\}$/);
  expect(text).toContain('ERROR: Operation failed: redis-connection');
  expect(text).toContain('WRONGPASS');
  expect(text).not.toContain('hunter2');
  expect(text).toMatch(/err\W+the receiver answered 500/);
});
