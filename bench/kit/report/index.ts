/** Reports of a run in three formats, each made from its results alone. */
export { toHtml as htmlReport } from './html.ts';
export { terminalTable, toMarkdown as markdownReport, toTerminal as terminalReport } from './text.ts';
