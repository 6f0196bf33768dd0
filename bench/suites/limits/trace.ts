/**
 * Batches over time: how long their members waited, how long their calls took, and how many were in flight. A part of each step is kept
 * in the Trace Event Format, which Perfetto and Chrome's tracing page show.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { percent } from '../../../lab/kit/text.ts';
import { median } from '../../kit/statistics.ts';
import type { ExtraTable } from '../../kit/suite.ts';

/** Times are milliseconds since 1970, with fractions. */
export interface Span {
  /** The queue of a batch, or the statement or script of a call. */
  readonly name: string;
  readonly startMs: number;
  readonly endMs: number;
  /** Of a batch: its members, those left in the queue, and how long the first one waited. */
  readonly size?: number;
  readonly left?: number;
  readonly waitedMs?: number;
}

/** What was traced of one queue or call in one step. */
export type TraceRow = Readonly<ReturnType<typeof rowsOf>[number]>;

export interface Step {
  readonly connections: number;
  readonly sinceMs: number;
  readonly untilMs: number;
}

/** How much of each step is kept. */
const keptMs = 100;

const hook = fileURLToPath(new URL('trace-hook.js', import.meta.url));
export const traceFlags = ['--import', hook];

/** Summarises the spans that a service wrote, and leaves a part of each step in their file, for Perfetto. */
export async function readTrace(file: string, steps: readonly Step[]): Promise<TraceRow[]> {
  const spans = JSON.parse(await readFile(file, 'utf8')) as Span[];
  const middle = ({ sinceMs, untilMs }: Step) => (sinceMs + untilMs) / 2;
  const kept = steps.flatMap((step) => within(spans, middle(step), middle(step) + keptMs));
  await writeFile(file, JSON.stringify({ traceEvents: kept.flatMap(eventsOf) }));
  return steps.flatMap((step) => rowsOf(within(spans, step.sinceMs, step.untilMs), step));
}

const within = (spans: readonly Span[], sinceMs: number, untilMs: number): Span[] =>
  spans.filter(({ startMs, endMs }) => endMs > sinceMs && startMs < untilMs);

export function rowsOf(spans: readonly Span[], { connections, sinceMs, untilMs }: Step) {
  const names = [...new Set(spans.map(({ name }) => name))];
  return names.map((name) => {
    const own = spans.filter((span) => span.name === name);
    const middle = (values: readonly (number | undefined)[]) => {
      const known = values.filter((value) => value !== undefined);
      return known.length === 0 ? null : median(known);
    };
    return {
      ...{ name, connections, perSecond: (own.length * 1_000) / (untilMs - sinceMs) },
      /** Medians. Of a call, size and waiting are null. */
      size: middle(own.map(({ size }) => size)),
      waitedMs: middle(own.map(({ waitedMs }) => waitedMs)),
      tookMs: middle(own.map(({ startMs, endMs }) => endMs - startMs))!,
      /** Shares of the time with none, one, and two or more in flight. */
      inFlight: inFlight(own, sinceMs, untilMs),
    };
  });
}

function inFlight(
  spans: readonly Span[],
  sinceMs: number,
  untilMs: number,
): readonly [number, number, number] {
  const changes = spans
    .flatMap(({ startMs, endMs }) => [[startMs, 1] as const, [endMs, -1] as const])
    .map(([at, by]) => [Math.min(untilMs, Math.max(sinceMs, at)), by] as const)
    .sort(([a], [b]) => a - b);
  const spent: [number, number, number] = [0, 0, 0];
  let count = 0;
  let lastMs = sinceMs;
  for (const [at, by] of [...changes, [untilMs, 0] as const]) {
    spent[Math.min(count, 2)]! += (at - lastMs) / (untilMs - sinceMs);
    count += by;
    lastMs = at;
  }
  return spent;
}

/** The two events of a span: those of one name may overlap. */
const eventsOf = ({ name, startMs, endMs, ...args }: Span, id: number) =>
  (
    [
      ['b', startMs],
      ['e', endMs],
    ] as const
  ).map(([ph, ms]) => ({ name, cat: 'batch', ph, id, pid: 1, tid: 1, ts: ms * 1_000, args }));

const shown = (value: number | null, digits: number) => value?.toFixed(digits) ?? '–';

/** The traces of a run: of each cell and number of connections the first. */
export function traceTables(
  results: readonly { readonly cell: string; readonly trace: readonly TraceRow[] }[],
): ExtraTable[] {
  const cells = [...new Set(results.filter(({ trace }) => trace.length > 0).map(({ cell }) => cell))];
  return cells.map((cell) => {
    const rows = results.flatMap((result) => (result.cell === cell ? result.trace : []));
    const first = rows.filter(
      (row, n) =>
        rows.findIndex(({ name, connections }) => name === row.name && connections === row.connections) === n,
    );
    return {
      title: `Batches and calls of the service with ${cell}`,
      columns: [
        'connections',
        'what',
        '/s',
        'size',
        'first waited (ms)',
        'took (ms)',
        'none in flight',
        'one',
        'more',
      ],
      rows: first.map(({ connections, name, perSecond, size, waitedMs, tookMs, inFlight }) => [
        ...[
          String(connections),
          name,
          shown(perSecond, 0),
          shown(size, 0),
          shown(waitedMs, 2),
          shown(tookMs, 2),
        ],
        ...inFlight.map((share) => percent(share)),
      ]),
    };
  });
}
