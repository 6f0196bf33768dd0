/** What signals to a command mean. The bench's and the service's own tests send real ones. */
import { EventEmitter } from 'node:events';
import { expect, it } from 'vitest';
import { onStopSignals } from '../../src/config/stop-signals.ts';

it('the first signal stops a command, those of the same Ctrl-C do nothing, and a later one ends it', () => {
  const process = new EventEmitter();
  const calls: string[] = [];
  let nowMs = 5_000;
  const note = (what: string) => (signal: string) => void calls.push(`${what} ${signal}`);
  onStopSignals(process, { first: note('first'), later: note('later') }, () => nowMs);
  process.emit('SIGINT');
  for (const afterMs of [3, 900]) {
    nowMs = 5_000 + afterMs;
    process.emit('SIGINT');
    process.emit('SIGTERM');
  }
  expect(calls).toEqual(['first SIGINT']);
  nowMs = 6_001;
  process.emit('SIGHUP');
  expect(calls).toEqual(['first SIGINT', 'later SIGHUP']);
});
