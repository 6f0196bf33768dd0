import { expect, it } from 'vitest';
import { rowsOf } from '../../bench/suites/limits/trace.ts';

it('a trace says how many were in flight for how long, within its step', () => {
  const call = (startMs: number, endMs: number) => ({ name: 'call', startMs, endMs });
  const batch = { name: 'batch', startMs: 150, endMs: 180, size: 7, left: 0, waitedMs: 3 };
  const step = { connections: 64, sinceMs: 100, untilMs: 200 };
  const shared = { connections: 64, size: null, waitedMs: null };
  expect(rowsOf([call(90, 120), call(110, 150), batch, call(195, 260)], step)).toEqual([
    { ...shared, name: 'call', perSecond: 30, tookMs: 40, inFlight: [0.45, 0.45, 0.1] },
    { ...shared, name: 'batch', perSecond: 10, size: 7, waitedMs: 3, tookMs: 30, inFlight: [0.7, 0.3, 0] },
  ]);
});
