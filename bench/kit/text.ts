/** Numbers and durations as people read them. */

/** 1213 → "1,213". */
export const number = (value: number): string => value.toLocaleString('en-US');

/** "1 order", "1,213 orders". */
export const quantity = (count: number, one: string, many = `${one}s`): string =>
  `${number(count)} ${count === 1 ? one : many}`;

/** 0.123 → "12 %". */
export const percent = (share: number, digits = 0): string => `${(share * 100).toFixed(digits)} %`;

/** 75,300 ms → "1:15". */
export function clock(ms: number): string {
  const seconds = Math.round(ms / 1_000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
}

export const reasonOf = (error: unknown): string =>
  error instanceof Error ? error.message || error.name : String(error);
