/** Numbers and durations as people read them. */

/** 1213 → "1,213". */
export const number = (value: number): string => value.toLocaleString('en-US');

/** "orders", "strategies". */
export const plural = (one: string): string => (one.endsWith('y') ? `${one.slice(0, -1)}ies` : `${one}s`);

/** "1 order", "1,213 orders". */
export const quantity = (count: number, one: string, many = plural(one)): string =>
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

/** The reason without advice to set variables of the service: for a program that starts its own servers and does not read them. */
export function reasonWithoutVariables(error: unknown): string {
  const capital = (_: string, first: string) => first.toUpperCase();
  const reason = reasonOf(error)
    .replaceAll(/\b\w+_URL is not set, and (\w)/g, capital)
    .replaceAll(/\bSet \w+_URL [^.,\n]*, or (\w)/g, capital)
    .replaceAll(/^[ -]*(Or )?set \w+_URL.*\n?/gm, '')
    .replaceAll(/,? or set \w+_URL[^.\n]*(?=\.|$)/gm, '')
    .replaceAll(/\. To refuse, set LOCAL_REDIS=.*/g, '')
    .trimEnd();
  // For messages with another wording.
  return /DATABASE_URL|REDIS_URL/.test(reason)
    ? `${reason}\nDATABASE_URL and REDIS_URL have no effect here.`
    : reason;
}
