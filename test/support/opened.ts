/** A part that the tests of a file share, such as its stores or a service. */
import { afterAll, beforeAll } from 'vitest';

/**
 * Called by a test file or a block: opens the part before its tests, and closes it after them. Parts open in the order of the calls, so
 * that one may use those above it, and close in the reverse order.
 * @returns the part; to use it earlier is an error
 */
export function opened<T extends AsyncDisposable | { close(): Promise<unknown> }>(
  open: () => T | Promise<T>,
): T {
  let part: T | undefined;
  beforeAll(async () => {
    part = await open();
  });
  afterAll(async () => {
    if (part === undefined) return;
    await ('close' in part ? part.close() : part[Symbol.asyncDispose]());
  });
  return new Proxy({} as T, {
    get(_, name) {
      if (part === undefined) throw new Error('a part is used before it is open');
      const member: unknown = Reflect.get(part, name);
      return typeof member === 'function' ? member.bind(part) : member;
    },
    set: (_, name, value) => part !== undefined && Reflect.set(part, name, value),
  });
}
