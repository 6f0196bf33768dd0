/** How reports write numbers: the unit of the metric and the size choose the digits. */

import { number } from '../../../lab/kit/text.ts';
import type { Interval } from '../statistics.ts';
import type { MetricInfo, Unit } from '../suite.ts';

/** A unit stays on the line of its number. */
const space = '\u00a0';

/** A value as a cell of a table, whose column names the unit. */
export function figure(value: number, unit: Unit): string {
  const size = Math.abs(value);
  if (unit === '%') return `${digits(value * 100, 1)}${space}%`;
  if (unit === '/s') return size >= 10 || value === 0 ? number(Math.round(value)) : digits(value, 1);
  if (Number.isInteger(value) && unit === '') return number(value);
  if (size >= 100) return number(Math.round(value));
  if (size >= 10) return value.toFixed(1);
  return size >= 0.1 || value === 0 ? value.toFixed(2) : value.toPrecision(2);
}

/** A value with its unit: "4,305/s", "1.95 s" for 1,950 ms. */
export function withUnit(value: number, unit: Unit): string {
  if (unit === 'ms' && value >= 1_000) return `${figure(value / 1_000, 's')}${space}s`;
  if (unit === '' || unit === '%') return figure(value, unit);
  return `${figure(value, unit)}${unit === '/s' ? '' : space}${unit}`;
}

/** A column's title, with a unit such as ms in brackets unless the title names it. */
export function columnTitle({ title, unit }: Pick<MetricInfo, 'title' | 'unit'>): string {
  const bare = unit === '' || unit === '%' || unit === '/s' || unit === '×';
  return bare || title.split(/[\s/]/).includes(unit) ? title : `${title} (${unit})`;
}

/** Both ends of an interval: "4,066 … 4,511"; one round has no interval. */
export function range({ low, high, rounds }: Interval, unit: Unit): string {
  return rounds < 2 ? '–' : `${figure(low, unit)} … ${figure(high, unit)}`;
}

/** A tick of an axis: 1500 → "1.5k". */
export function tick(value: number): string {
  return Math.abs(value) >= 1_000 ? `${digits(value / 1_000, 1)}k` : digits(value, 2);
}

/** "2026-11-21 07:38 UTC". */
export function when(iso: string): string {
  return `${iso.slice(0, 16).replace('T', ' ')} UTC`;
}

function digits(value: number, most: number): string {
  return number(Number(value.toFixed(most)));
}
