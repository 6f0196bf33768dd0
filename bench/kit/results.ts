/** The one results format, schema 2: everything a report, a CSV file or `--compare` shows comes from this value. */
import { cp, mkdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import type { Machine } from '../../lab/kit/machine.ts';
import type * as suite from './suite.ts';
import type { Broken, Noise, RatioRow, SummaryRow } from './summary.ts';

/** The fields: docs/reference/results-json.md. */
export interface Results {
  /** Grows when a field is redefined or removed. */
  readonly schema: 2;
  readonly suite: string;
  /** ISO 8601 UTC. */
  readonly startedAt: string;
  readonly finishedAt: string;
  /** Interrupted or broken off: only finished trials are included. */
  readonly partial: boolean;
  /** A smoke run: no report draws a ranking from it. */
  readonly smoke: boolean;
  readonly commit: string;
  readonly machine: Machine;
  readonly generator: string;
  readonly plan: PlanInfo;
  readonly trials: readonly suite.TrialBase[];
  /** Ranked rows first, then unfinished audits, then failed ones, then the control; point by point. */
  readonly summary: readonly SummaryRow[];
  /** Null: the run has no A/A control. */
  readonly noise: Noise | null;
  readonly ratios: readonly RatioRow[];
  readonly metrics: readonly suite.MetricInfo[];
  readonly curves: readonly suite.CurveInfo[];
  readonly checks: readonly Omit<suite.CheckInfo, 'read'>[];
  readonly layout: suite.ReportLayout;
  readonly tables: readonly suite.ExtraTable[];
  /** What the suite `faults` found; absent: the suite has no matrix. */
  readonly matrices?: readonly suite.Matrix[];
  /** Cells of committed matrices that a later run measured; absent: none. */
  readonly later?: readonly Later[];
  readonly broken: readonly Broken[];
  /** Why the run is not a success; empty: it is one. */
  readonly failures: readonly string[];
}

export interface Later extends Pick<Results, 'startedAt' | 'commit' | 'machine'> {
  readonly cells: readonly string[];
}

/** `cells` with the control; `trials` as planned; `options` of the suite. */
export interface PlanInfo extends Pick<suite.Planned, 'cells' | 'points' | 'baseline' | 'ladder'> {
  readonly rounds: number;
  readonly seed: number;
  readonly trials: number;
  readonly options: Readonly<Record<string, unknown>>;
}

/** Makes a folder named by the UTC time, with a number if that is taken. */
export async function makeFolder(out: string, startedAt: Date, prefix = ''): Promise<string> {
  const name = prefix + startedAt.toISOString().slice(0, 19).replaceAll(':', '-');
  await mkdir(out, { recursive: true });
  for (let n = 1; ; n++) {
    const folder = join(out, n === 1 ? name : `${name}-${n}`);
    try {
      await mkdir(folder);
      return folder;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
  }
}

/** Writes results.json and results.csv: after each trial, so that a crash loses at most one. */
export async function writeData(folder: string, results: Results): Promise<void> {
  await writeWhole(join(folder, 'results.json'), `${JSON.stringify(results)}\n`);
  await writeWhole(join(folder, 'results.csv'), toCsv(results.trials));
}

/** A reader sees the old file or the new one, never half of one. */
export async function writeWhole(path: string, text: string): Promise<void> {
  await writeFile(`${path}.part`, text);
  await rename(`${path}.part`, path);
}

/** @throws when the file is not a result of this schema */
export async function readResults(path: string): Promise<Results> {
  const results = JSON.parse(await readFile(path, 'utf8')) as Results;
  if (results.schema === 2) return results;
  throw new Error(`${path}: not results of schema 2, but of ${JSON.stringify(results.schema) ?? 'none'}`);
}

/** Points `<out>/latest` at the folder: a link, or a copy where links cannot be made. */
export async function pointLatest(out: string, folder: string): Promise<void> {
  const latest = join(out, 'latest');
  await rm(latest, { recursive: true, force: true });
  await symlink(basename(folder), latest, 'dir').catch(() => cp(folder, latest, { recursive: true }));
}

/** The committed form: the summary, from which all charts, tables and comparisons are made, with four digits; no trials. */
export function forCommit(results: Results): string {
  const rounded = (_key: string, value: unknown): unknown =>
    typeof value === 'number' && !Number.isInteger(value) ? Number(value.toPrecision(4)) : value;
  return `${JSON.stringify({ ...results, trials: [] }, rounded)}\n`;
}

/**
 * Merges a later run of some cells into committed results: its rows replace those of the same cells, or are appended. Rows
 * of a matrix are not compared with each other, so they need not come from one run.
 * @returns null when the later run replaces all: there is no matrix, or it has every cell
 * @throws when it has some cells and other columns or rounds
 */
export function withLaterRows(before: Results, after: Results): Results | null {
  const cells = after.plan.cells.map(({ name }) => name);
  const isOld = (name: string): boolean => !cells.includes(name);
  if (before.matrices === undefined || before.plan.cells.every(({ name }) => !isOld(name))) return null;
  const columnsOf = ({ matrices = [] }: Results) =>
    matrices.map(({ columns, rows }) =>
      rows.length === 0 ? null : columns.map(({ title }) => title).join(),
    );
  const [known, columns] = [columnsOf(before), columnsOf(after)];
  const fits = columns.length > 0 && columns.every((one, n) => one === null || one === known[n]);
  const { rounds } = before.plan;
  if (!fits || rounds !== after.plan.rounds)
    throw new Error(
      `the committed results have more rows: use --rounds ${rounds} and all columns, or run all`,
    );
  const join = <T>(old: readonly T[], more: readonly T[], nameOf: (one: T) => string): T[] => {
    const replaced = old.flatMap((one) => {
      const name = nameOf(one);
      return isOld(name) ? [one] : more.filter((other) => nameOf(other) === name);
    });
    return [...replaced, ...more.filter((one) => !old.some((other) => nameOf(other) === nameOf(one)))];
  };
  const { startedAt, commit, machine, metrics, layout } = after;
  const later = (before.later ?? []).map((one) => ({ ...one, cells: one.cells.filter(isOld) }));
  return {
    ...before,
    ...{ metrics, layout },
    plan: { ...before.plan, cells: join(before.plan.cells, after.plan.cells, ({ name }) => name) },
    summary: join(before.summary, after.summary, ({ cell }) => cell),
    matrices: before.matrices.map((matrix, n) => {
      const more = after.matrices![n]!.rows;
      return { ...matrix, rows: join(matrix.rows, more, ({ name }) => name) };
    }),
    later: [...later.filter((one) => one.cells.length > 0), { cells, startedAt, commit, machine }],
  };
}

/** One row for each result, RFC 4180: every number, text and list of texts, named as in results.json. */
export function toCsv(trials: readonly suite.TrialBase[]): string {
  const rows = trials.map((trial) => new Map(flat(trial)));
  const columns = [...new Set(rows.flatMap((row) => [...row.keys()]))];
  const lines = rows.map((row) => columns.map((column) => quoted(row.get(column) ?? '')));
  return [columns, ...lines].map((line) => `${line.join(',')}\r\n`).join('');
}

function flat(value: object, prefix = ''): [string, string][] {
  return Object.entries(value).flatMap(([key, field]): [string, string][] => {
    const name = `${prefix}${key}`;
    if (Array.isArray(field))
      return field.every((one) => typeof one === 'string') ? [[name, field.join('; ')]] : [];
    if (typeof field === 'object' && field !== null) return flat(field, `${name}.`);
    return [[name, String(field ?? '')]];
  });
}

const quoted = (text: string): string => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
