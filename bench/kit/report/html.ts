/**
 * report.html: the whole report as one page that needs nothing else. On the first screen the sentence and the ranking; then the
 * other charts of the suite's layout; then tables. Checkboxes switch cells off in all charts at once: style rules hide them, and
 * a few lines of script stretch the bars that are left. Without script the page is whole.
 */
import type { Results } from '../results.ts';
import type { Chart, Section } from '../suite.ts';
import {
  correctnessList,
  type Drawn,
  goalBars,
  metricBars,
  rangeBars,
  rankingBars,
  stackedBars,
} from './bars.ts';
import { html, listOf, Markup, nothing } from './markup.ts';
import { plural, quantity } from './numbers.ts';
import { style } from './page-style.ts';
import { curvePanels, sweepPanels } from './panels.ts';
import { cellNames, compared, findingsOf, groupsOf, isRanked, sweptBy } from './rows.ts';
import { allTables, type Table } from './table.ts';
import { noiseText, notices, originText, sentence } from './words.ts';

/** @param sweeps results of other runs of the same suite, whose sweeps the page shows, too */
export function toHtml(results: Results, sweeps: readonly Results[] = []): string {
  const all = [results, ...sweeps];
  const names = cellNames(all);
  const { layout } = results;
  const [first, ...others] = layout.sections.map((section, index) =>
    drawnSection(section, `s${index}`, all, names),
  );
  const body = [
    opening(results),
    first ?? nothing,
    // In one box, so that the checkboxes stay in view as far as the charts go.
    html`<div>${names.length > 1 && !results.smoke ? filter(names, layout.noun) : nothing}${others}</div>`,
    tables(results, sweeps),
    wrongs(results),
    prose('How it was measured', layout.notes),
    prose('What it does not show', layout.limits ?? []),
    glossary(results),
  ];
  return `${page(layout.title, html`${body}`, names.length).text}\n`;
}

/** Hides the cells whose checkbox is off; one rule for each. */
function switches(cells: number): string {
  return Array.from(
    { length: cells },
    (_, n) =>
      `body:has(#c${n}:not(:checked)){--d${n}:none}body:has(#c${n}:not(:checked)) [data-s="${n}"]{display:none}`,
  ).join('');
}

/** Stretches bars to the largest that is shown; "none" is useful before choosing two. */
const script = `const f=document.forms[0];
const draw=()=>{for(const u of document.querySelectorAll('ul.bars')){const v=[...u.querySelectorAll('[data-v]')].filter(e=>getComputedStyle(e).display!='none').map(e=>+e.dataset.v);
if(v.length)u.style.setProperty('--max',Math.max(...v)||1)}};
if(f){f.oninput=draw;for(const b of f.querySelectorAll('button')){b.hidden=false;b.onclick=()=>{for(const c of f.querySelectorAll('input'))c.checked=b.value=='1';draw()}}draw()}`;

function page(title: string, body: Markup, cells: number): Markup {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title}</title>
<style>${new Markup(style + switches(cells))}</style>
</head>
<body>
<main>
${body}
</main>
<script>${new Markup(script)}</script>
</body>
</html>`;
}

function opening(results: Results): Markup {
  const warnings = notices(results);
  return html`<header>
<h1>${results.layout.title}</h1>
<p class="lead">${sentence(results)}</p>
${warnings.length === 0 ? nothing : html`<div class="notice">${listOf(warnings)}</div>`}
</header>`;
}

/** Below the first screen, and on top of the page from there. */
function filter(names: readonly string[], noun: string): Markup {
  const boxes = names.map(
    (name, n) => html`<label><input type="checkbox" id="c${n}" checked autocomplete="off"> ${name}</label>`,
  );
  return html`<form class="filter"><details><summary>Show or hide: ${quantity(names.length, noun)}</summary><div>${boxes}<button type="button" value="1" hidden>all</button><button type="button" value="0" hidden>none</button></div></details></form>`;
}

function section(title: string, content: Markup): Markup {
  return html`<section><h2>${title}</h2>
${content}</section>`;
}

/** A section of the layout; nothing where none of its charts has data. */
function drawnSection(
  { title, text, charts }: Section,
  id: string,
  all: readonly Results[],
  names: readonly string[],
): Markup {
  const drawn = charts.map((chart, index) => drawnChart(chart, `${id}-${index}`, all, names));
  if (drawn.every(({ text }) => text === '')) return nothing;
  return section(title, html`${text === '' ? nothing : html`<p>${text}</p>`}${drawn}`);
}

function drawnChart(chart: Chart, id: string, all: readonly Results[], names: readonly string[]): Markup {
  const [results] = all;
  if (results === undefined) return nothing;
  const numberOf = (cell: string): number => names.indexOf(cell);
  if (chart.kind === 'goals') return results.goals.length === 0 ? nothing : goalBars({ results });
  if (chart.kind === 'sweep') {
    const swept = sweptBy(all, chart.axis);
    if (swept === undefined || swept.smoke) return nothing;
    const panels = sweepPanels(
      id,
      { results: swept, rows: compared(swept.summary), numberOf },
      chart.axis,
      chart.metric,
    );
    return titled(chart.title, panels);
  }
  const groups = groupsOf(results);
  const drawn: Drawn = { results, rows: compared(groups[0]?.rows ?? []), numberOf };
  if (groups.length !== 1) return nothing;
  if (chart.kind === 'ranking')
    return isRanked(results) ? rankingBars(drawn, chart.metric) : correctnessList(drawn);
  return results.smoke && chart.kind !== 'curves' ? nothing : comparison(chart, id, drawn);
}

function comparison(
  chart: Exclude<Chart, { kind: 'goals' | 'sweep' | 'ranking' }>,
  id: string,
  drawn: Drawn,
): Markup {
  const { results, rows } = drawn;
  if (chart.kind === 'curves') {
    const info = results.curves.find(({ key }) => key === chart.curve);
    return info === undefined ? nothing : titled(info.title, curvePanels(id, drawn, info));
  }
  const measured = chart.metrics.filter((key) => rows.some(({ values }) => values[key] !== undefined));
  if (measured.length === 0) return nothing;
  if (chart.kind === 'range') return titled(chart.title, rangeBars(drawn, measured));
  return titled(chart.title, chart.stacked ? stackedBars(drawn, measured) : metricBars(drawn, measured));
}

const titled = (title: string, chart: Markup): Markup =>
  chart.text === '' ? nothing : html`<h3>${title}</h3>${chart}`;

function tables(results: Results, sweeps: readonly Results[]): Markup {
  const all = allTables(results, sweeps);
  if (all.length === 0) return nothing;
  return section('Tables', html`${all.map((table) => html`<h3>${table.title}</h3>${tableBox(table)}`)}`);
}

/** A table that scrolls in its own box when it is wider than the page; the box takes the keyboard's focus. */
function tableBox({ title, columns, rows }: Table): Markup {
  const heading = Math.max(
    0,
    columns.findIndex(([, align]) => align === 'left'),
  );
  const cell = (text: string, index: number): Markup => {
    const align = columns[index]?.[1] ?? 'left';
    return index === heading
      ? html`<th scope="row">${text}</th>`
      : html`<td${align === 'right' ? new Markup(' class="right"') : nothing}>${text}</td>`;
  };
  const head = columns.map(([name, align]) => html`<th scope="col" class="${align}">${name}</th>`);
  const body = rows.map((texts) => html`<tr>${texts.map(cell)}</tr>`);
  const hint = columns.length > 4 ? html`<p class="hint">↔ The table scrolls sideways.</p>` : nothing;
  return html`${hint}<div class="scroll" role="region" tabindex="0" aria-label="${title}"><table><thead><tr>${head}</tr></thead><tbody>${body}</tbody></table></div>`;
}

/** Findings of a row that are shown at once; the others unfold. */
const shownFindings = 3;

function wrongs({ summary }: Results): Markup {
  const items = findingsOf(summary).map(({ cell, findings }) => {
    const rest = findings.slice(shownFindings);
    const more = html`<details><summary>${rest.length} more</summary>${listOf(rest)}</details>`;
    return html`<b>${cell}</b>${listOf(findings.slice(0, shownFindings))}${rest.length === 0 ? nothing : more}`;
  });
  return items.length === 0 ? nothing : section('Findings', html`<div class="prose">${listOf(items)}</div>`);
}

function prose(title: string, paragraphs: readonly string[]): Markup {
  if (paragraphs.length === 0) return nothing;
  return section(title, html`<div class="prose">${listOf(paragraphs.map(withCode))}</div>`);
}

/** Text between backticks is code. */
function withCode(text: string): Markup {
  const parts = text.split('`');
  return html`${parts.map((part, index) => (index % 2 === 1 ? html`<code>${part}</code>` : html`${part}`))}`;
}

/** What was compared, what the words mean, and where the run comes from. */
function glossary(results: Results): Markup {
  const { metrics, checks, summary, plan, noise, layout } = results;
  const used = metrics.filter(({ key }) => summary.some(({ values }) => values[key] !== undefined));
  const words = [
    ...used.map(({ title, help }): Word => [title, help]),
    ...(isRanked(results) ? [['rank', tieHelp] as const] : []),
    ...(summary.some(({ trials }) => trials > 1) ? [['95 %', intervalHelp] as const] : []),
    ...checks.flatMap(({ title, help }): Word[] => (help === undefined ? [] : [[title, help]])),
  ];
  const cells = plan.cells.flatMap(({ name, summary, control }): Word[] =>
    summary === '' || control ? [] : [[name, summary]],
  );
  const origin = [originText(results), ...(noise === null ? [] : [noiseText(results)])];
  const noun = plural(layout.noun);
  return html`${definitions(`${noun.charAt(0).toUpperCase()}${noun.slice(1)}`, cells)}
${definitions('Words', words)}
${prose('Origin', origin)}`;
}

type Word = readonly [word: string, meaning: string];
const tieHelp =
  'By the median. 1= is a tie: the difference from the first row of that rank is within the noise.';
const intervalHelp = 'Where the median of a repeated run is expected: a bootstrap over the rounds.';

function definitions(title: string, words: readonly Word[]): Markup {
  if (words.length === 0) return nothing;
  const list = words.map(([word, meaning]) => html`<div><dt>${word}</dt><dd>${withCode(meaning)}</dd></div>`);
  return section(title, html`<dl>${list}</dl>`);
}
