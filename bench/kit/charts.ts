/** The charts of a report's page. Every chart shows all cells; checkboxes of the page switch them in all charts at once. */

type Keys = readonly string[];

/** Bars by rank, each with its interval and its verdict. */
export const ranking = (metric: string) => ({ kind: 'ranking', metric }) as const;

/** Bars of one metric, or of several, each by itself. */
export const bars = (title: string, ...metrics: Keys) =>
  ({ kind: 'bars', title, metrics, stacked: false as boolean }) as const;

/** Bars of metrics that are parts of a whole. */
export const stackedBars = (title: string, ...metrics: Keys) =>
  ({ ...bars(title, ...metrics), stacked: true }) as const;

/** One line per cell from percentile to percentile: p50, p90, p99. */
export const range = (title: string, ...metrics: Keys) => ({ kind: 'range', title, metrics }) as const;

/** One metric along an axis of the points, as small multiples. */
export const sweep = (title: string, metric: string, axis: string) =>
  ({ kind: 'sweep', title, metric, axis }) as const;

/** A curve of each cell, as small multiples. */
export const curves = (curve: string) => ({ kind: 'curves', curve }) as const;

/** A grid of words and colors, with a picture behind each cell. @param index of the matrix in the results */
export const matrixOf = (index: number) => ({ kind: 'matrix', matrix: index }) as const;

/** Each ratio with its interval. */
export const ratios = { kind: 'ratios' } as const;

export type Chart =
  | ReturnType<typeof ranking | typeof bars | typeof range | typeof sweep | typeof curves | typeof matrixOf>
  | typeof ratios;
