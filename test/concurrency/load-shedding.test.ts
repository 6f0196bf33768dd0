/** Admission control on a fake clock, without sleeping. */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { createLoadShedder } from '../../src/concurrency/load-shedding.ts';

const bounds = {
  serviceShare: 0.5,
  initialLimit: 10,
  minLimit: 4,
  maxLimit: 1_000,
  maxQueued: 50,
  clientShare: 0.1,
  shortQueueMs: 1_000,
  windowMs: 100,
  checkMs: 20,
} as const;
let admission: ReturnType<typeof createLoadShedder>;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['performance', 'setInterval', 'clearInterval', 'setTimeout', 'clearTimeout'] });
  admission = createLoadShedder(200, 1, bounds);
});
afterEach(() => vi.useRealTimers());

/** `count` attempts ask at once. */
const arrive = (count: number) => Array.from({ length: count }, () => admission.enter());

it('admits up to the limit, then queues, then sheds', async () => {
  const answers = arrive(70);
  expect(answers.filter((answer) => answer === true)).toHaveLength(10);
  expect(answers.filter((answer) => answer instanceof Promise)).toHaveLength(50);
  expect(answers.filter((answer) => answer === false)).toHaveLength(10);
  expect(admission.state).toMatchObject({ inFlight: 10, queued: 50, limit: 10 });
});

it('lets one client fill only a share of the queue, and frees the share as its attempts leave', () => {
  arrive(10);
  const attempts = () => Array.from({ length: 10 }, () => admission.enter('10.0.0.1'));
  const isQueued = (answer: boolean | Promise<boolean>) => answer instanceof Promise;
  expect(attempts().map(isQueued)).toEqual([...Array(5).fill(true), ...Array(5).fill(false)]);
  expect(admission.enter('10.0.0.2')).toBeInstanceOf(Promise);
  for (let i = 0; i < 2; i++) admission.leave();
  expect(attempts().filter(isQueued)).toHaveLength(2);
  expect(admission.state.queued).toBe(6);
});

it('serves the queue in order, without overtaking', async () => {
  const order: number[] = [];
  const line = arrive(13).slice(10) as Promise<boolean>[];
  const served = line.map((turn, i) => turn.then((admitted) => admitted && order.push(i)));
  admission.leave();
  expect(admission.enter()).toBeInstanceOf(Promise);
  for (let i = 0; i < 2; i++) admission.leave();
  await Promise.all(served);
  expect(order).toEqual([0, 1, 2]);
  expect(admission.state).toMatchObject({ inFlight: 10, queued: 1 });
});

it('sheds requests that waited too long, and leaves no timer', async () => {
  const line = arrive(15).slice(10) as Promise<boolean>[];
  vi.advanceTimersByTime(99);
  expect(admission.state.queued).toBe(5);
  vi.advanceTimersByTime(50);
  expect(await Promise.all(line)).toEqual([false, false, false, false, false]);
  expect(vi.getTimerCount()).toBe(0);
});

it('keeps the queue short after a timeout, until it is forgotten', () => {
  arrive(11);
  vi.advanceTimersByTime(150); // one timed out, and none finished, so that the limit shrank
  const { limit } = admission.state;
  expect(limit).toBe(5);
  expect(arrive(20).filter((answer) => answer === false)).toHaveLength(20 - limit);
  vi.advanceTimersByTime(1_200);
  for (let i = 0; i < 10; i++) admission.leave();
  expect(arrive(70).filter((answer) => answer === false)).toHaveLength(70 - 50 - admission.state.limit);
});

/** Runs a store that serves `perSecond` for `ms`, with twice as many attempts. @returns the limit */
function overload(perSecond: number, ms: number): number {
  for (let passed = 0; passed < ms; passed += 10) {
    arrive((perSecond / 100) * 2);
    const served = Math.min(perSecond / 100, admission.state.inFlight);
    for (let i = 0; i < served; i++) admission.leave();
    vi.advanceTimersByTime(10);
  }
  return admission.state.limit;
}

it('finds the limit that the stores can serve in time, whether they become faster or slower', () => {
  expect(overload(2_000, 2_000)).toBeGreaterThan(150);
  expect(admission.state.limit).toBeLessThan(250);
  expect(overload(400, 2_000)).toBeGreaterThan(30);
  expect(admission.state.limit).toBeLessThan(60);
  expect(overload(5_000, 2_000)).toBeGreaterThan(350);
});

it('keeps the limit within its bounds', () => {
  expect(overload(100_000, 3_000)).toBe(1_000);
  for (let i = 0; i < 20; i++) {
    arrive(1_200); // the stores hang: nobody leaves
    vi.advanceTimersByTime(200);
  }
  expect(admission.state.limit).toBe(4);
});
