/** Clocks of parts of this process: what a part starts within `run` keeps its clock. */
import { AsyncLocalStorage } from 'node:async_hooks';
import { afterAll, vi } from 'vitest';

/** Called by a test file. */
export function ownClocks() {
  const aheadMs = new AsyncLocalStorage<number>();
  const now = Date.now;
  const spy = vi.spyOn(Date, 'now').mockImplementation(() => now() + (aheadMs.getStore() ?? 0));
  afterAll(() => spy.mockRestore());
  return { run: <T>(ms: number, start: () => T): T => aheadMs.run(ms, start) };
}
