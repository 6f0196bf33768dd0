import { appendFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { loadNumbers } from '../../bench/suites/strategies/result.ts';
import {
  type AttemptOutcome,
  type HistoryRecord,
  readHistory,
  resultOf,
  writeHistory,
} from '../../lab/history.ts';

const folder = mkdtempSync(join(tmpdir(), 'stampede-history-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const attempt = (
  id: number,
  outcome: AttemptOutcome,
  invokedUs: number,
  completedUs: number | null,
): HistoryRecord => ({
  ...{ id, op: 'purchase', saleId: 1, userId: `user-${id}`, invokedUs, completedUs },
  ...{ result: resultOf[outcome], outcome, orderId: resultOf[outcome] === 'ok' ? `order-${id}` : null },
  status: completedUs === null ? null : 200,
});

it('a history is read back as it was written, and a bad record is refused with its line number', async () => {
  const path = join(folder, 'history.jsonl');
  const history = [attempt(0, 'busy', 0, 1), attempt(1, 'accepted', 2, 3), attempt(2, 'unknown', 4, null)];
  await writeHistory(path, history);
  expect(await readHistory(path)).toEqual(history);
  appendFileSync(path, '{"outcome":"busy","result":"ok"}\n');
  await expect(readHistory(path)).rejects.toThrow(/:4: outcome "busy" with result "ok"/);
});

describe('the numbers of a trial', () => {
  const facts = { stock: 2, soldOut: true, schedule: null };

  it('count every attempt in one outcome, and divide by the durations in their definitions', () => {
    const history = [
      attempt(0, 'accepted', 1_000, 3_000),
      attempt(1, 'accepted', 1_500, 101_000),
      attempt(2, 'replayed', 2_000, 6_000),
      attempt(3, 'sold-out', 150_000, 151_000),
      attempt(4, 'busy', 160_000, 163_000),
      attempt(5, 'not-open', 160_000, 165_000),
      attempt(6, 'unknown', 160_000, 166_000),
      attempt(7, 'unknown', 170_000, null),
      attempt(8, 'unexpected', 180_000, 201_000),
      attempt(9, 'not-enough-units', 190_000, null),
    ];
    expect(loadNumbers(history, facts)).toMatchObject({
      ...{ attempts: 10, accepted: 2, replayed: 1, soldOut: 2 },
      ...{ notOpen: 1, busy: 1, unknown: 2, unexpected: 1 },
      // First invoked at 1 ms; last accepted at 101 ms: 2 in 100 ms. Last completed at 201 ms: 8 in 200 ms.
      ...{ acceptedPerSecond: 20, attemptsPerSecond: 40, timeToSellOutMs: 100 },
      // Latencies in ms: 1, 2, 3, 4, 5, 6, 21, 99.5.
      latencyMs: { p50: 4, p90: 99.5, p99: 99.5, max: 99.5 },
    });
    expect(loadNumbers(history, { ...facts, soldOut: false }).timeToSellOutMs).toBeNull();
  });

  it('count latency from the intended start, if there is a schedule', () => {
    // Due at 0, 1 and 2 ms; the second was sent late, the third got no answer. Due times are looked up by id, not by position.
    const late = [
      attempt(2, 'unknown', 2_000, null),
      attempt(1, 'accepted', 41_000, 43_000),
      attempt(0, 'sold-out', 0, 5_000),
    ];
    const schedule = Float64Array.of(0, 1_000, 2_000);
    expect(loadNumbers(late, { ...facts, schedule })).toMatchObject({
      acceptedPerSecond: 23.3, // still from when the first was sent
      latencyMs: { p50: 5, max: 42 },
      acceptedLatencyMs: { p50: 42, max: 42 },
      refusedLatencyMs: { p50: 5, max: 5 },
      latencyCurve: expect.arrayContaining([[50, 42]]),
    });
    expect(loadNumbers(late, facts).acceptedLatencyMs).toMatchObject({ p50: 2, max: 2 });
  });

  it('have the units left over time, below zero when oversold', () => {
    const history = [
      attempt(0, 'accepted', 1_000, 3_000),
      attempt(1, 'accepted', 1_500, 2_040),
      attempt(2, 'sold-out', 5_000, 6_000),
      attempt(3, 'accepted', 6_000, 7_000),
    ];
    const { remainingOverTime } = loadNumbers(history, facts);
    expect(remainingOverTime.join(' ')).toBe('0,2 1,1 2,0 6,-1');
  });
});
