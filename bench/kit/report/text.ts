/** The report as text: a summary on a terminal, and the whole in Markdown. */
import type { Results } from '../results.ts';
import { compared, findingsOf } from './rows.ts';
import { allTables, comparisons, extraTables, glossary, ratiosTable, type Table } from './table.ts';
import { noiseText, notices, prose, sentence } from './words.ts';

/** Most findings of a cell on a terminal; the report has all. */
const shownFindings = 2;

const joined = (texts: readonly string[]): string => texts.filter((text) => text !== '').join('\n\n');

/** Terminal output at a run's end: the comparison, the ratios, what went wrong, and the sentence. */
export function terminalReport(results: Results): string {
  const { summary, ratios, noise } = results;
  const tables = comparisons(results).map((table, _, { length }) =>
    length === 1 ? terminalTable(table) : `${table.title}\n${terminalTable(table)}`,
  );
  const findings = findingsOf(compared(summary)).flatMap(({ cell, findings }) => {
    const more = findings.length - shownFindings;
    const lines = findings.slice(0, shownFindings).map((finding) => `  ${cell}: ${finding}`);
    return more > 0 ? [...lines, `  ${cell}: ${more} more in the report`] : lines;
  });
  return joined([
    ...tables,
    ...extraTables(results).map((table) => `${table.title}\n${terminalTable(table)}`),
    ratios.length === 0 ? '' : terminalTable(ratiosTable(results)),
    findings.join('\n'),
    noise === null ? '' : noiseText(results),
    notices(results)
      .map((notice) => `! ${notice}`)
      .join('\n'),
    sentence(results),
  ]);
}

/** report.md. @param sweeps results of other runs of the same suite; the report also shows their sweeps */
export function markdownReport(results: Results, sweeps: readonly Results[] = []): string {
  const oneLine = (text: string): string => text.replaceAll('\n', ' ');
  const tableText = (table: Table): string => `## ${table.title}\n\n${markdownTable(table)}`;
  const sections = [
    `# ${results.layout.title}`,
    sentence(results),
    notices(results)
      .map((text) => `> **${oneLine(text)}**`)
      .join('\n>\n'),
    ...allTables(results, sweeps).map(tableText),
    ...prose(results).map(
      ([title, items]) => `## ${title}\n\n${items.map((text) => `- ${oneLine(text)}`).join('\n')}`,
    ),
    ...glossary(results).map(tableText),
  ];
  return `${joined(sections)}\n`;
}

type Cells = Pick<Table, 'columns' | 'rows'>;

/** A table with aligned columns. */
export function terminalTable({ columns, rows }: Cells): string {
  const head = columns.map(([title]) => title);
  const widths = head.map((title, n) => Math.max(title.length, ...rows.map((row) => row[n]?.length ?? 0)));
  const line = (texts: readonly string[]): string => {
    const cells = columns.map(([, align], n) =>
      align === 'left' ? (texts[n] ?? '').padEnd(widths[n]!) : (texts[n] ?? '').padStart(widths[n]!),
    );
    return cells.join('  ').trimEnd();
  };
  return [line(head), line(widths.map((width) => '─'.repeat(width))), ...rows.map(line)].join('\n');
}

/** A Markdown table; a bar in a text does not end its cell. */
export function markdownTable({ columns, rows }: Cells): string {
  const line = (texts: readonly string[]): string =>
    `| ${texts.map((text) => text.replaceAll('|', '\\|')).join(' | ')} |`;
  const rule = columns.map(([, align]) => (align === 'right' ? '---:' : '---'));
  return [line(columns.map(([title]) => title)), `|${rule.join('|')}|`, ...rows.map(line)].join('\n');
}
