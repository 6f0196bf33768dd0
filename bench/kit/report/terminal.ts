/** The end of a run on a terminal: the sentence, the comparison, the goals, and what went wrong. */
import type { Results } from '../results.ts';
import { compared, findingsOf, groupsOf } from './rows.ts';
import { goalsTable, mainTable, type Table } from './table.ts';
import { noiseText, notices, pointText, sentence } from './words.ts';

/** Findings of a row that a terminal shows; the report has all. */
const shownFindings = 2;

export function toTerminal(results: Results): string {
  const groups = groupsOf(results);
  const tables = groups.map(({ point, rows }) => {
    const heading = groups.length === 1 ? '' : `${pointText(results, point)}\n`;
    return `${heading}${terminalTable(mainTable(results, rows))}`;
  });
  const findings = findingsOf(compared(results.summary)).flatMap(({ cell, findings }) => {
    const more = findings.length - shownFindings;
    const lines = findings.slice(0, shownFindings).map((finding) => `  ${cell}: ${finding}`);
    return more > 0 ? [...lines, `  ${cell}: ${more} more in the report`] : lines;
  });
  return [
    ...tables,
    results.goals.length === 0 ? '' : terminalTable(goalsTable(results)),
    findings.join('\n'),
    results.noise === null ? '' : noiseText(results),
    notices(results)
      .map((notice) => `! ${notice}`)
      .join('\n'),
    sentence(results),
  ]
    .filter((text) => text !== '')
    .join('\n\n');
}

/** A table with aligned columns. */
export function terminalTable({ columns, rows }: Pick<Table, 'columns' | 'rows'>): string {
  const widths = columns.map(([title], index) =>
    Math.max(title.length, ...rows.map((row) => row[index]?.length ?? 0)),
  );
  const line = (texts: readonly string[]): string =>
    columns
      .map(([, align], index) => {
        const [text, width] = [texts[index] ?? '', widths[index] ?? 0];
        return align === 'left' ? text.padEnd(width) : text.padStart(width);
      })
      .join('  ')
      .trimEnd();
  const head = columns.map(([title]) => title);
  return [line(head), line(widths.map((width) => '─'.repeat(width))), ...rows.map(line)].join('\n');
}
