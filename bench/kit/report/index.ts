/** Reports of a run in three formats, each made from its results alone. */
export { toHtml as htmlReport } from './html.ts';
export { toMarkdown as markdownReport } from './markdown.ts';
export { terminalTable, toTerminal as terminalReport } from './terminal.ts';
