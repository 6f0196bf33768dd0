/** Axes: where a value stands, and which values are written beside the axis. Pure. */

export interface Scale {
  /** Ends of the axis, as places. */
  readonly from: number;
  readonly to: number;
  /** The place of a value. */
  place(value: number): number;
  /** Values that are written, ascending. */
  readonly ticks: readonly number[];
  text(value: number): string;
}

type Text = (value: number) => string;

/** From 0, or from below it, to a round number that no value exceeds. */
export function linear(values: readonly number[], text: Text, steps = 6): Scale {
  const least = Math.min(0, ...values);
  const most = Math.max(0, ...values);
  const step = roundUp((most - least || 1) / steps);
  const first = Math.floor(least / step);
  const last = Math.max(first + 1, Math.ceil(most / step));
  const ticks = Array.from({ length: last - first + 1 }, (_, n) => (first + n) * step);
  return { from: first * step, to: last * step, place: (value) => value, ticks, text };
}

/** 1, 2 or 5 times a power of ten, at least `value`. */
function roundUp(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5].find((digit) => digit * power >= value) ?? 10) * power;
}

/** Logarithmic, between round numbers; what is not above 0 stands at its lower end. */
export function logarithmic(values: readonly number[], text: Text): Scale {
  const positive = values.filter((value) => value > 0);
  const [least, most] = positive.length === 0 ? [1, 10] : [Math.min(...positive), Math.max(...positive)];
  const candidates = roundNumbers(Math.floor(Math.log10(least)), Math.ceil(Math.log10(most)) + 1);
  const from = candidates.findLast((candidate) => candidate <= least) ?? least;
  const to = candidates.find((candidate) => candidate >= most && candidate > from) ?? most;
  const within = candidates.filter((candidate) => candidate >= from && candidate <= to);
  const powers = within.filter((candidate) => Number.isInteger(Math.log10(candidate)));
  const ticks = within.length > 12 && powers.length > 2 ? powers : within;
  const place = (value: number): number => Math.log10(Math.max(value, from));
  return { from: Math.log10(from), to: Math.log10(to), place, ticks, text };
}

function roundNumbers(fromPower: number, toPower: number): number[] {
  const powers = Array.from({ length: toPower - fromPower + 1 }, (_, n) => fromPower + n);
  return powers.flatMap((power) => [1, 2, 5].map((digit) => Number(`${digit}e${power}`)));
}

/** Exactly the given points; logarithmic where they span much and begin above 0. */
export function points(values: readonly number[], text: Text): Scale {
  const ticks = [...new Set(values)].sort((a, b) => a - b);
  const [first, last] = [ticks[0] ?? 0, ticks.at(-1) ?? 1];
  const place = first > 0 && last / first >= 8 ? Math.log10 : (value: number): number => value;
  return { from: place(first), to: last === first ? place(first) + 1 : place(last), place, ticks, text };
}

/** As far apart as the shares that are slower: from 90 to 99 as far as from 99 to 99.9. */
export const percentiles: Scale = {
  from: rarity(50),
  to: rarity(99.9),
  place: rarity,
  ticks: [50, 90, 99, 99.9],
  text: (percent) => `p${percent}`,
};

function rarity(percent: number): number {
  return -Math.log10(1 - percent / 100);
}
