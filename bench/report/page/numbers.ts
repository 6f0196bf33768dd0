/** How the report writes numbers. A unit stays on the line of its number. */
import { number } from '../../audit/check.ts';
import type { Interval } from '../../kit/statistics.ts';

const space = '\u00a0';

/** A rate a second: 8912.4 → "8,912", 0.32 → "0.3". */
export function rate(value: number): string {
  return Math.abs(value) >= 10 || value === 0 ? number(Math.round(value)) : String(Number(value.toFixed(1)));
}

export function units(value: number): string {
  return number(value).replace('-', '−');
}

/** "8,700 … 9,120": both ends of an interval of rates. */
export function ratedInterval({ low, high }: Interval): string {
  return `${rate(low)} … ${rate(high)}`;
}

/** ms as "0.11 s". */
export function seconds(value: number): string {
  const text = value / 1_000;
  return `${text >= 100 ? number(Math.round(text)) : text.toFixed(text >= 10 ? 1 : 2)}${space}s`;
}

/** 12.34 → "12.3", 2.345 → "2.35". */
export function cpuSeconds(value: number): string {
  return value.toFixed(value >= 10 ? 1 : 2);
}

/** A quotient: 1.523 → "1.52", 0.0512 → "0.051". */
export function times(value: number): string {
  if (value >= 10) return value.toFixed(1);
  return value >= 0.1 ? value.toFixed(2) : value.toPrecision(2);
}

/** "2026-11-21 07:38 UTC". */
export function when(iso: string): string {
  return `${iso.slice(0, 16).replace('T', ' ')} UTC`;
}

/** A share: 0.973 → "97.3 %". */
export function percent(share: number): string {
  return `${Number((share * 100).toFixed(1))}${space}%`;
}
