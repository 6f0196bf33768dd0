/** A column of a table, on the terminal and in Markdown. */
export type Column = readonly [title: string, align: 'left' | 'right'];

/** A table for a terminal, with aligned columns. */
export function terminalTable(columns: readonly Column[], rows: readonly (readonly string[])[]): string {
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
