/** The charts of a report, as a suite names them. */
import type { Chart } from './suite.ts';

/** Bars by rank, each with its interval and its verdict. */
export const ranking = (metric: string): Chart => ({ kind: 'ranking', metric });

/** Bars of one metric, or of several, each by itself. */
export const bars = (title: string, ...metrics: readonly string[]): Chart => ({
  ...{ kind: 'bars', title, metrics, stacked: false },
});

/** Bars of metrics that are parts of a whole. */
export const stackedBars = (title: string, ...metrics: readonly string[]): Chart => ({
  ...{ kind: 'bars', title, metrics, stacked: true },
});

/** One line per cell from percentile to percentile. */
export const range = (title: string, ...metrics: readonly string[]): Chart => ({
  kind: 'range',
  title,
  metrics,
});

/** One metric along an axis of the points. */
export const sweep = (title: string, metric: string, axis: string): Chart => ({
  ...{ kind: 'sweep', title, metric, axis },
});

/** A curve of each cell. */
export const curves = (curve: string): Chart => ({ kind: 'curves', curve });
