/** Metrics written as rows, one line each. */
import type { Metric, Unit } from './suite.ts';

/** `+`: higher is better. `-`: lower. */
export type MetricRow<Result> = readonly [
  key: string,
  title: string,
  unit: Unit,
  better: '+' | '-' | '',
  read: (result: Result) => number | null | undefined,
];

/** @param help one sentence by key */
export const metricsOf = <Result>(
  rows: readonly MetricRow<Result>[],
  help: Readonly<Record<string, string>>,
): Metric<Result>[] =>
  rows.map(([key, title, unit, sign, read]) => {
    const better = sign === '' ? null : sign === '+' ? 'higher' : 'lower';
    return { key, title, unit, better, help: help[key] ?? '', read: (result) => read(result) ?? null };
  });
