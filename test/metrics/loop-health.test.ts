/** When failing background work is retried and logged, on a clock of the test's own. */
import { Registry } from 'prom-client';
import { expect, it } from 'vitest';
import { backgroundHealth } from '../../src/metrics/loop-health.ts';

function setUp() {
  let nowMs = 0;
  const registry = new Registry();
  const log: string[] = [];
  const background = backgroundHealth(
    registry,
    {
      failing: (what, error) => log.push(`${what}: ${(error as Error).message}`),
      recovered: (what) => log.push(`${what} recovered`),
    },
    () => nowMs,
  );
  return { background, loop: background.loop('expiry'), registry, log, pass: (ms: number) => (nowMs += ms) };
}
const refusal = new Error('refused');

it('backs off from 1 s, doubling to 60 s, and resets after a success', () => {
  const { loop, pass } = setUp();
  for (const restMs of [1, 2, 4, 8, 16, 32, 60, 60].map((s) => s * 1_000)) {
    for (let atOnce = 0; atOnce < 3; atOnce++) loop.failed('sale 7', refusal);
    pass(restMs - 1);
    expect([loop.isBackingOff('sale 7'), loop.backingOff('sale'), loop.backingOff('order')]).toEqual([
      true,
      ['7'],
      [],
    ]);
    pass(1);
    expect([loop.isBackingOff('sale 7'), loop.backingOff('sale')]).toEqual([false, []]);
  }
  loop.succeeded('sale 7');
  loop.failed('sale 7', refusal);
  pass(1_000);
  expect(loop.isBackingOff('sale 7')).toBe(false);
});

it('logs each new error of an item once, and its recovery', () => {
  const { loop, log, pass } = setUp();
  for (let i = 0; i < 5; i++, pass(60_000 / 5)) loop.failed('sale 7', refusal);
  loop.failed('sale 7', new Error('another'));
  loop.failed('sale 7', refusal);
  loop.succeeded('sale 7');
  loop.succeeded('sale 7');
  expect(log).toEqual(['sale 7: refused', 'sale 7: another', 'sale 7 recovered']);
});

it('counts every failure, and reports how many fail now and why', async () => {
  const { background, loop, registry, log } = setUp();
  for (let sale = 0; sale < 30; sale++) loop.failed(`sale ${sale}`, new Error(`refused ${sale}`));
  expect(await background.loop('tasks').step('claim tasks', async () => 'done')).toBe('done');
  expect(background.degraded()).toEqual([{ what: 'expiry', detail: '30 failing; sale 29: refused 29' }]);
  const metrics = await registry.metrics();
  expect(metrics).toContain('stampede_background_failures_total{loop="expiry"} 30');
  expect(metrics).toContain('stampede_background_failing{loop="expiry"} 30');
  expect(metrics).toContain('stampede_background_failing{loop="tasks"} 0');
  expect(log).toHaveLength(10);
  for (let sale = 0; sale < 30; sale++) loop.succeeded(`sale ${sale}`);
  expect(background.degraded()).toEqual([]);
});

it('forgets items that are not retried, and remembers a bounded number', () => {
  const { background, loop, pass } = setUp();
  loop.failed('order 1', refusal);
  pass(31_001);
  expect(background.degraded()).toEqual([]);
  for (let order = 0; order < 6_000; order++) loop.failed(`order ${order}`, refusal);
  expect(loop.backingOff('order')).toHaveLength(5_000);
  expect(loop.backingOff('order').at(-1)).toBe('5999');
});
