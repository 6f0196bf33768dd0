/**
 * report.html: the whole report as one self-contained page, without scripts except for the button `none`. On the first screen are
 * the sentence and the ranking; then the suite's other charts; then tables. Checkboxes switch cells off in all charts at once.
 */

import { readFileSync } from 'node:fs';
import { quantity } from '../../../lab/kit/text.ts';
import type { Chart } from '../charts.ts';
import type { Results } from '../results.ts';
import type { Section } from '../suite.ts';
import { type Drawn, rangeBars, rankingBars, valueBars } from './bars.ts';
import { html, Markup, nothing } from './markup.ts';
import { matrixGrid } from './matrix.ts';
import { palette } from './palette.ts';
import { curvePanels, sweepPanels } from './panels.ts';
import { cellNames, compared, groupsOf, metricOf, sweptBy } from './rows.ts';
import { allTables, glossary, ratiosTable, type Table } from './table.ts';
import { notices, prose, sentence } from './words.ts';

const colors = `:root{color-scheme:light dark;${palette.light}}@media screen and (prefers-color-scheme:dark){:root{${palette.dark}}}`;
const style = colors + readFileSync(new URL('page.css', import.meta.url), 'utf8');

/** @param sweeps results of other runs of the same suite; the page also shows their sweeps */
export function htmlReport(results: Results, sweeps: readonly Results[] = []): string {
  const { layout, smoke } = results;
  const all = [results, ...sweeps];
  const names = cellNames(all);
  const drawn = layout.sections.map((one, n) => drawnSection(one, `s${n}`, all, names));
  const [first = nothing, ...others] = drawn;
  const warnings = notices(results);
  const isShown = layout.sections.some(({ charts }) => charts.some(({ kind }) => kind === 'ratios'));
  const isSwitched = layout.sections.some(({ charts }) => charts.some(({ kind }) => kind !== 'matrix'));
  const tables = allTables(results, sweeps).filter(({ title }) => title !== 'Ratios' || !isShown);
  const [said, words] = [prose(results), glossary(results)];
  const titles = [
    ...layout.sections.filter((_, n) => drawn[n]!.text !== '').map(({ title }) => title),
    ...['Tables', ...said.map(([title]) => title), ...words.map(({ title }) => title)],
  ];
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${layout.title}</title>
<style>${new Markup(style + names.map((_, n) => switchOff(n)).join(''))}</style>
</head>
<body>
<main>
<header>
<h1>${layout.title}</h1>
<p class="lead">${sentence(results)}</p>
${warnings.length === 0 ? nothing : html`<div class="notice">${list(warnings)}</div>`}
${contents(titles)}
</header>
${first}
<div>${names.length > 1 && !smoke && isSwitched ? filter(names, layout.noun) : nothing}${others}</div>
${section('Tables', html`${tables.map((table) => titled(table.title, tableBox(table)))}`)}
${said.map(([title, items]) => section(title, html`<div class="prose">${list(items)}</div>`))}
${words.map((table) => section(table.title, tableBox(table)))}
</main>
</body>
</html>
`.text;
}

/** An unchecked box hides the cell's rows and its lines in other panels, and takes it out of the charts' scales. */
const switchOff = (n: number): string =>
  `body:has(#c${n}:not(:checked)){--d${n}:none;--s${n}:0;& [data-s="${n}"]{display:none}}`;

/** Checkboxes below the first screen; they stay in view within the charts' box. */
function filter(names: readonly string[], noun: string): Markup {
  const boxes = names.map(
    (name, n) => html`<label><input type="checkbox" id="c${n}" checked autocomplete="off"> ${name}</label>`,
  );
  const none = 'for (const one of this.form) one.checked = false';
  return html`<form class="filter"><details><summary>Show or hide: ${quantity(names.length, noun)}</summary><div>${boxes}<button type="reset">all</button><button type="button" class="none" onclick="${none}">none</button></div></details></form>`;
}

const idOf = (title: string): string => title.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-');

const section = (
  title: string,
  content: Markup,
): Markup => html`<section id="${idOf(title)}"><h2>${title}</h2>
${content}</section>`;

/** Links to the sections. */
const contents = (titles: readonly string[]): Markup =>
  html`<nav aria-label="Contents">${titles.map((title) => html`<a href="#${idOf(title)}">${title}</a>`)}</nav>`;

/** A section of the layout; nothing if none of its charts has data. */
function drawnSection(
  { title, text, charts }: Section,
  id: string,
  all: readonly Results[],
  names: readonly string[],
): Markup {
  const drawn = charts.map((chart, n) => drawnChart(chart, `${id}-${n}`, all, names));
  if (drawn.every((one) => one.text === '')) return nothing;
  return section(title, html`${text === '' ? nothing : html`<p>${text}</p>`}${drawn}`);
}

function drawnChart(chart: Chart, id: string, all: readonly Results[], names: readonly string[]): Markup {
  const results = chart.kind === 'sweep' ? sweptBy(all, chart.axis) : all[0];
  if (results === undefined) return nothing;
  const groups = groupsOf(results);
  const numberOf = (cell: string): number => names.indexOf(cell);
  const drawn: Drawn = { results, rows: compared(groups[0]?.rows ?? []), numberOf };
  if (chart.kind === 'matrix') {
    const matrix = results.matrices?.[chart.matrix];
    return matrix === undefined ? nothing : matrixGrid(id, matrix);
  }
  if (chart.kind === 'ratios') return results.ratios.length === 0 ? nothing : tableBox(ratiosTable(results));
  if (chart.kind === 'sweep') {
    const rows = compared(results.summary);
    return results.smoke
      ? nothing
      : titled(chart.title, sweepPanels(id, { ...drawn, rows }, chart.axis, chart.metric));
  }
  if (groups.length !== 1) return nothing;
  if (chart.kind === 'ranking') return rankingBars(drawn, chart.metric);
  if (chart.kind === 'curves') {
    const info = results.curves.find(({ key }) => key === chart.curve);
    return info === undefined ? nothing : titled(info.title, curvePanels(id, drawn, info));
  }
  const measured = chart.metrics.filter((key) => drawn.rows.some(({ values }) => values[key] !== undefined));
  if (results.smoke || measured.length === 0) return nothing;
  if (chart.kind === 'range') return titled(chart.title, rangeBars(drawn, measured));
  if (chart.stacked || measured.length === 1) return titled(chart.title, valueBars(drawn, measured));
  // A sum of metrics that are no parts of a whole says nothing.
  const each = measured.map(
    (key) => html`<h4>${metricOf(results, key).title}</h4>${valueBars(drawn, [key])}`,
  );
  return titled(chart.title, html`${each}`);
}

const titled = (title: string, chart: Markup): Markup =>
  chart.text === '' ? nothing : html`<h3>${title}</h3>${chart}`;

/** A table that scrolls in its own box when it is wider than the page; the box takes the keyboard's focus. */
function tableBox({ title, columns, rows }: Table): Markup {
  const heading = columns.findIndex(([, align]) => align === 'left');
  const cell = (text: string, n: number): Markup =>
    n === heading
      ? html`<th scope="row">${text}</th>`
      : html`<td class="${columns[n]?.[1] ?? 'left'}">${withCode(text)}</td>`;
  const head = columns.map(([name, align]) => html`<th scope="col" class="${align}">${name}</th>`);
  const body = rows.map((texts) => html`<tr>${texts.map(cell)}</tr>`);
  const hint = columns.length > 4 ? html`<p class="hint">↔ The table scrolls sideways.</p>` : nothing;
  return html`${hint}<div class="scroll" role="region" tabindex="0" aria-label="${title}"><table><thead><tr>${head}</tr></thead><tbody>${body}</tbody></table></div>`;
}

/** Items of a list that are shown at once; the others unfold. */
const shownItems = 8;

function list(items: readonly string[]): Markup {
  const all = items.map((item) => html`<li>${withCode(item)}</li>`);
  const rest = all.slice(shownItems);
  const more = html`<details><summary>${rest.length} more</summary><ul>${rest}</ul></details>`;
  return html`<ul>${all.slice(0, shownItems)}</ul>${rest.length === 0 ? nothing : more}`;
}

/** Text between backticks is code. */
const withCode = (text: string): Markup =>
  html`${text.split('`').map((part, n) => (n % 2 === 1 ? html`<code>${part}</code>` : html`${part}`))}`;
