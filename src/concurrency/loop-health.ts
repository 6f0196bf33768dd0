/**
 * What a loop of background work reports about the items that it processes (a sale, an order, a task), and learns about them. An item is
 * named by its kind and id, such as `sale 7`; a step of the whole loop by its purpose, such as `claim tasks`. See metrics/loop-health.ts.
 */
export interface LoopHealth {
  failed(item: string, error: unknown): void;
  succeeded(item: string): void;
  /** Runs one step and records its result. @returns null when it threw */
  step<T>(item: string, work: () => Promise<T>): Promise<T | null>;
  /** Whether the item failed recently and must be skipped. */
  isBackingOff(item: string): boolean;
  /** The ids of all items of a kind that must be skipped. */
  backingOff(kind: string): string[];
  /** Marks items of a kind as recovered when they no longer need processing. */
  retain(kind: string, isPending: (id: string) => boolean): void;
}
