/** A profile as tables: the same on the terminal and in docs/reference/measurements.md. */
import { number } from '../audit/check.ts';
import { markdownTable } from '../report/markdown.ts';
import type { Column } from '../report/terminal-table.ts';
import type { ProfileReport } from './profile.ts';

const cpuColumns: readonly Column[] = [
  ['variant', 'left'],
  ['service µs', 'right'],
  ['Redis µs', 'right'],
  ['Postgres µs', 'right'],
  ['speed', 'right'],
];

const shareColumns: readonly Column[] = [
  ['who', 'left'],
  ['of the service’s time', 'right'],
];

export function profileText({ options, variants, shares }: ProfileReport): string {
  const { attempts, connections, rounds, strategy } = options;
  const us = (value: number | null): string => (value === null ? '–' : value.toFixed(1));
  const range = (values: readonly number[]): string =>
    values.length === 0 ? '–' : `${Math.min(...values).toFixed(2)} … ${Math.max(...values).toFixed(2)}`;
  return [
    markdownTable(
      cpuColumns,
      variants.map(({ name, what, cpu, rates }) => [
        `${name}: ${what}`,
        us(cpu.service),
        us(cpu.redis),
        us(cpu.postgres),
        range(rates),
      ]),
    ),
    `CPU of an attempt with \`${strategy}\` that is sold and committed: ${number(attempts)} attempts, ${connections} connections, medians ` +
      `of ${rounds} rounds; speed as a share of the first line’s in the same round, lowest and highest.`,
    markdownTable(
      shareColumns,
      shares.map(({ who, share }) => [who, `${(share * 100).toFixed(1)} %`]),
    ),
  ].join('\n\n');
}
