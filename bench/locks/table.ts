/** The comparison as rows of text: the same cells stand on the terminal and in locks.md. */
import { number } from '../audit/check.ts';
import { milliseconds } from '../report/table.ts';
import type { Column } from '../report/terminal-table.ts';
import type { Spread } from '../summary.ts';
import type { ShapeSummary, SummaryRow } from './summary.ts';

export const columns: readonly Column[] = [
  ['lock', 'left'],
  ['alone/s', 'right'],
  ['together/s', 'right'],
  ['p50 ms', 'right'],
  ['p99 ms', 'right'],
  ['apart/s', 'right'],
  ['× redis', 'right'],
  ['p50 ms', 'right'],
  ['p99 ms', 'right'],
  ['requests', 'right'],
  ['commands', 'right'],
  ['to another', 'right'],
  ['order', 'right'],
  ['Jain', 'right'],
  ['overlaps', 'right'],
];

/** The contended figures to the right of `apart/s` are of that shape. */
export function cells({ contender, shapes: { alone, together, apart }, overlaps }: SummaryRow): string[] {
  return [
    contender,
    median(alone?.perSecond, rate),
    median(together?.perSecond, rate),
    median(together?.handOffP50Ms, milliseconds),
    median(together?.handOffP99Ms, milliseconds),
    median(apart?.perSecond, rate),
    median(apart?.ratio, twoPlaces),
    median(apart?.handOffP50Ms, milliseconds),
    median(apart?.handOffP99Ms, milliseconds),
    median(apart?.requestsPerGrant, onePlace),
    median(apart?.commandsPerGrant, onePlace),
    median(apart?.toAnother, share),
    median(apart?.order, twoPlaces),
    median(apart?.jain, twoPlaces),
    number(overlaps),
  ];
}

/** What a shape with one contender has. */
const speedColumns: readonly Column[] = [
  ['lock', 'left'],
  ['rounds', 'right'],
  ['grants/s', 'right'],
  ['min … max', 'right'],
  ['× redis', 'right'],
  ['min … max', 'right'],
  ['wait p50 ms', 'right'],
  ['p99 ms', 'right'],
  ['longest ms', 'right'],
  ['requests', 'right'],
  ['commands', 'right'],
];

const contendedColumns: readonly Column[] = [
  ['hand-off p50 ms', 'right'],
  ['min … max', 'right'],
  ['p99 ms', 'right'],
  ['min … max', 'right'],
  ['to another', 'right'],
  ['p50 ms', 'right'],
  ['p99 ms', 'right'],
  ['order', 'right'],
  ['oldest first', 'right'],
  ['Jain', 'right'],
  ['most ÷ mean', 'right'],
];

export const shapeColumns = (contended: boolean): readonly Column[] =>
  contended ? [...speedColumns, ...contendedColumns] : speedColumns;

export function shapeCells(contender: string, shape: ShapeSummary, contended: boolean): string[] {
  const both = (spread: Spread | null, text: (value: number) => string): string[] => [
    median(spread, text),
    range(spread, text),
  ];
  const speed = [
    contender,
    String(shape.rounds),
    ...both(shape.perSecond, rate),
    ...both(shape.ratio, twoPlaces),
    median(shape.waitP50Ms, milliseconds),
    median(shape.waitP99Ms, milliseconds),
    median(shape.longestWaitMs, milliseconds),
    median(shape.requestsPerGrant, onePlace),
    median(shape.commandsPerGrant, onePlace),
  ];
  if (!contended) return speed;
  return [
    ...speed,
    ...both(shape.handOffP50Ms, milliseconds),
    ...both(shape.handOffP99Ms, milliseconds),
    median(shape.toAnother, share),
    median(shape.toAnotherP50Ms, milliseconds),
    median(shape.toAnotherP99Ms, milliseconds),
    median(shape.order, twoPlaces),
    median(shape.oldestFirst, share),
    median(shape.jain, twoPlaces),
    median(shape.mostOverMean, twoPlaces),
  ];
}

/** A dash stands for what was not counted. */
function median(spread: Spread | null | undefined, text: (value: number) => string): string {
  return spread === null || spread === undefined ? '–' : text(spread.median);
}

function range(spread: Spread | null, text: (value: number) => string): string {
  return spread === null ? '–' : `${text(spread.min)} … ${text(spread.max)}`;
}

const rate = (value: number): string => (value >= 10 ? number(Math.round(value)) : value.toFixed(1));
const onePlace = (value: number): string => (value >= 100 ? number(Math.round(value)) : value.toFixed(1));
const twoPlaces = (value: number): string => value.toFixed(2);
const share = (value: number): string => `${Math.round(value * 100)} %`;
