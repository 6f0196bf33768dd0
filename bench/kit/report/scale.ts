/** Axes of charts: where a value is placed, from 0 to 1, and which values are written beside the axis. Pure. */

export interface Scale {
  readonly place: (value: number) => number;
  /** The written values, ascending. */
  readonly ticks: readonly number[];
}

/** A scale from 0 or less to the largest value. */
export function linearScale(values: readonly number[]): Scale {
  const low = Math.min(0, ...values);
  const high = Math.max(low + 1e-9, ...values);
  const power = 10 ** Math.floor(Math.log10((high - low) / 3));
  const step = power * ([1, 2, 5].find((digit) => digit * power >= (high - low) / 3) ?? 10);
  const ticks = Array.from({ length: 9 }, (_, n) => (Math.ceil(low / step) + n) * step);
  return { place: (value) => (value - low) / (high - low), ticks: ticks.filter((value) => value <= high) };
}

/** A scale from just below the smallest positive value to just above the largest. */
export function logScale(values: readonly number[]): Scale {
  const positive = values.filter((value) => value > 0);
  const [least, most] = positive.length === 0 ? [1, 10] : [Math.min(...positive), Math.max(...positive)];
  const low = Math.log10(least) - 0.08;
  const high = Math.max(Math.log10(most), low + 0.5) + 0.08;
  const powers = Array.from({ length: Math.ceil(high) - Math.floor(low) + 1 }, (_, n) => Math.floor(low) + n);
  const digits = high - low > 1.5 ? [1] : [1, 2, 5];
  const ticks = powers.flatMap((power) => digits.map((digit) => Number(`${digit}e${power}`)));
  const place = (value: number): number =>
    Math.max(0, (Math.log10(Math.max(value, 10 ** low)) - low) / (high - low));
  return { place, ticks: ticks.filter((value) => Math.log10(value) >= low && Math.log10(value) <= high) };
}
