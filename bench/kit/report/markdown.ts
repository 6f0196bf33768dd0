/** report.md: the sentence, the comparison, the goals, what went wrong, and every other table. */
import type { Results } from '../results.ts';
import { findingsOf } from './rows.ts';
import { allTables, type Table } from './table.ts';
import { noiseText, notices, originText, sentence } from './words.ts';

/** @param sweeps results of other runs of the same suite, whose sweeps the report shows, too */
export function toMarkdown(results: Results, sweeps: readonly Results[] = []): string {
  const { layout, summary, noise } = results;
  const findings = findingsOf(summary).flatMap(({ cell, findings }) =>
    findings.map((text) => `${cell}: ${text.replaceAll('\n', ' ')}`),
  );
  const sections = [
    `# ${layout.title}`,
    sentence(results),
    notices(results)
      .map((text) => `> **${text.replaceAll('\n', ' ')}**`)
      .join('\n>\n'),
    ...tablesOf(results, sweeps),
    list('Findings', findings),
    list('How it was measured', layout.notes),
    list('What it does not show', layout.limits ?? []),
    `## Origin\n\n${originText(results)}${noise === null ? '' : `\n\n${noiseText(results)}`}`,
  ];
  return `${sections.filter((text) => text !== '').join('\n\n')}\n`;
}

const tablesOf = (results: Results, sweeps: readonly Results[]): string[] =>
  allTables(results, sweeps).map((table) => `## ${table.title}\n\n${markdownTable(table)}`);

function list(title: string, items: readonly string[]): string {
  return items.length === 0 ? '' : `## ${title}\n\n${items.map((text) => `- ${text}`).join('\n')}`;
}

/** A Markdown table; a bar in a text does not end its cell. */
export function markdownTable({ columns, rows }: Pick<Table, 'columns' | 'rows'>): string {
  const line = (texts: readonly string[]): string =>
    `| ${texts.map((text) => text.replaceAll('|', '\\|')).join(' | ')} |`;
  const rule = columns.map(([, align]) => (align === 'right' ? '---:' : '---'));
  return [line(columns.map(([title]) => title)), `|${rule.join('|')}|`, ...rows.map(line)].join('\n');
}
