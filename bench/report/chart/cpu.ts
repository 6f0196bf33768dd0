/** CPU time for 10,000 attempts, by process. */
import { label } from '../../plan.ts';
import type { Cost } from '../../result.ts';
import type { SummaryRow } from '../../summary.ts';
import { cpuSeconds } from '../page/numbers.ts';
import { type Bar, barDrawing } from './bars.ts';
import { type Figure, left, right } from './figure.ts';
import { extremes } from './finding.ts';
import { barSample, hatch } from './look.ts';
import { linear } from './scale.ts';

type Cpu = Cost['cpu'];

const processes = [
  { key: 'service', name: 'service', fill: 'var(--series-0)', stroke: 'var(--series-0)' },
  { key: 'redis', name: 'Redis', fill: hatch('slanted'), stroke: 'var(--series-1)' },
  { key: 'postgres', name: 'Postgres', fill: hatch('dotted'), stroke: 'var(--series-2)' },
] as const;

export function cpuFigure(summary: readonly SummaryRow[]): Figure | null {
  const rows = summary.flatMap((row) => {
    const cpu = row.cost?.cpu;
    return cpu === undefined || known(cpu).length === 0 ? [] : [{ row, cpu }];
  });
  if (rows.length === 0) return null;
  const totals = rows.map(({ cpu }) => total(cpu));
  const drawing = {
    bars: rows.map(({ row, cpu }) => barOf(row, cpu)),
    x: linear(totals, (value) => String(Number(value.toPrecision(3)))),
    xName: 'CPU seconds for 10,000 attempts',
  };
  return {
    id: 'cpu',
    title: 'CPU time for 10,000 attempts',
    finding: finding(rows.filter(({ cpu }) => known(cpu).length === processes.length).map(({ row }) => row)),
    caption:
      'Closed loop, medians over the rounds: CPU time of the service and of both stores, with what the stores did ' +
      'besides. That of the load generator is not in it.',
    legend: processes.map(({ key, name, fill, stroke }) => ({
      sample: barSample(`cpu-legend-${key}`, fill, stroke),
      text: name,
    })),
    legendAlways: true,
    data: {
      columns: [left('strategy'), ...processes.map(({ name }) => right(`${name} s`)), right('together s')],
      rows: rows.map(({ row, cpu }) => [
        label(row),
        ...processes.map(({ key }) => (cpu[key] === null ? 'not known' : cpuSeconds(cpu[key]))),
        cpuSeconds(total(cpu)),
      ]),
    },
    draw: (frame, description) => barDrawing(drawing, frame, description),
  };
}

function known(cpu: Cpu): (typeof processes)[number][] {
  return processes.filter(({ key }) => cpu[key] !== null);
}

function total(cpu: Cpu): number {
  return processes.reduce((sum, { key }) => sum + (cpu[key] ?? 0), 0);
}

function barOf(row: SummaryRow, cpu: Cpu): Bar {
  const missing = processes.filter(({ key }) => cpu[key] === null).map(({ name }) => name);
  const without = missing.length === 0 ? '' : ` without ${missing.join(', ')}`;
  return {
    name: label(row),
    parts: known(cpu).map(({ key, fill, stroke }) => ({ value: cpu[key] ?? 0, fill, stroke })),
    interval: null,
    text: `${cpuSeconds(total(cpu))} s${without}`,
  };
}

function finding(rows: readonly SummaryRow[]): string {
  if (rows.length === 0) return 'The CPU time of all three processes together is known of no strategy.';
  const words = {
    most: 'used the most',
    least: 'the least',
    text: (value: number) => `${cpuSeconds(value)}\u00a0s`,
  };
  return extremes(rows, ({ cost }) => (cost === null ? 0 : total(cost.cpu)), words);
}
