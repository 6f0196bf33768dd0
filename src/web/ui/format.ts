/** Formats numbers, amounts and times for people, in English like the pages, whatever the browser's language. */
import { moneyIn } from '../../domain/money.ts';

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumSignificantDigits: 3 });
/** In the visitor's time zone, which they name. */
const minute = {
  month: 'short',
  day: 'numeric',
  hour: 'numeric',
  minute: '2-digit',
  timeZoneName: 'short',
} as const;
const shortInstant = new Intl.DateTimeFormat('en', minute);
const longInstant = new Intl.DateTimeFormat('en', { ...minute, year: 'numeric' });
const instant = new Intl.DateTimeFormat('en', { ...minute, year: 'numeric', second: '2-digit' });

export const count = (n: number): string => whole.format(n);
/** At most three significant digits: 12.3K. */
export const compact = (n: number): string => short.format(n);
/** The currency of sales that name none. */
export const currencyCode = document.documentElement.dataset.currency || 'USD';
/** @param code the currency of the sale */
export const money = (minorUnits: number, code = currencyCode): string => moneyIn(code).text(minorUnits);
export const dateTime = (iso: string): string => instant.format(new Date(iso));
/** To the minute. */
export const longDate = (iso: string): string => longInstant.format(new Date(iso));
/** To the minute, without the year. */
export const shortDate = (iso: string): string => shortInstant.format(new Date(iso));

/** From how many seconds on, the size in seconds, and the name. */
const UNITS = [
  [2 * 86_400, 86_400, 'd'],
  [2 * 3_600, 3_600, 'h'],
  [60, 60, 'min'],
  [0, 1, 's'],
] as const;

/** `15 min`, `26 h`. */
export function span(s: number): string {
  const [, size, unit] = UNITS.find(([least]) => s >= least)!;
  return `${Math.round(s / size)} ${unit}`;
}

/** A duration as `2 d 03:04:05`, `03:04:05` or `04:05`, rounded up to a second. */
export function clock(ms: number): string {
  const s = Math.max(0, Math.ceil(ms / 1_000));
  const two = (n: number) => String(Math.floor(n)).padStart(2, '0');
  const time = [...(s >= 3_600 ? [two((s % 86_400) / 3_600)] : []), two((s % 3_600) / 60), two(s % 60)].join(
    ':',
  );
  return s >= 86_400 ? `${Math.floor(s / 86_400)} d ${time}` : time;
}
