/** report.html: the whole report as one page that needs nothing else: no network, no script, no other file. */
import { label } from '../plan.ts';
import { figures } from './charts.ts';
import { finishedTrials } from './markdown.ts';
import { html, listOf, Markup, nothing } from './page/markup.ts';
import { rate, times, when } from './page/numbers.ts';
import { style } from './page/style.ts';
import { trialsTable } from './page/trials.ts';
import { isCorrect, pointsOf, verdictSentence, verdicts } from './page/verdicts.ts';
import { howMeasured, limits, machineFacts, meanings } from './page/words.ts';
import type { Results } from './results.ts';
import { noiseText } from './table.ts';

/**
 * The page of a run.
 * @param sweeps runs along one axis each, whose drawings and trials are to stand in the same page
 */
export function toHtml(results: Results, sweeps: readonly Results[] = []): string {
  const drawings = figures(results, sweeps);
  const body = [
    opening(results),
    section('verdicts', 'Which strategies are correct, and how fast', verdicts(results)),
    drawings.length === 0 ? nothing : section('charts', 'Charts', html`${drawings}`),
    section('words', 'What the words mean', meanings()),
    section('measured', 'How it was measured', howMeasured(results)),
    section('machine', 'The machine', machineFacts(results)),
    section('limits', 'What it does not show', limits(results)),
    section('trials', 'Every trial', everyTrial(results, sweeps)),
  ];
  return `${page(html`${body}`).text}\n`;
}

const title = 'Stock-deduction strategies compared';

function page(body: Markup): Markup {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title}</title>
<style>${new Markup(style)}</style>
</head>
<body>
<main>
${body}
</main>
</body>
</html>`;
}

function section(id: string, heading: string, content: Markup): Markup {
  return html`<section aria-labelledby="${id}"><h2 id="${id}">${heading}</h2>
${content}</section>`;
}

function opening(results: Results): Markup {
  const { startedAt, commit, partial, plan, shortcomings } = results;
  const unfinished = partial
    ? html`<p class="notice"><strong>Partial run:</strong> ${finishedTrials(results.trials)} of ${plan.trials} trials were finished. What follows holds for these alone.</p>`
    : nothing;
  const short =
    shortcomings.length === 0
      ? nothing
      : html`<div class="notice"><p><strong>This run is not a success:</strong></p>${listOf(shortcomings)}</div>`;
  return html`<header>
<h1>${title}</h1>
<p class="lead">${verdictSentence(results)} ${fastest(results)}</p>
<p class="when">Measured ${when(startedAt)}, commit <code>${commit.replace(/^([0-9a-f]{12})[0-9a-f]+/, '$1')}</code>.</p>
${unfinished}${short}
<p class="note">${noiseText(results)}</p>
</header>`;
}

/** Who leads, and by how much; nothing where no strategy may be ranked, or several points were measured. */
function fastest(results: Results): string {
  const ranked = results.summary.filter(isCorrect);
  const [first] = ranked;
  if (first === undefined || first.acceptedInterval === null || pointsOf(results).length > 1) return '';
  const leaders = ranked.filter(({ rank }) => rank === first.rank).map(label);
  const [what, speed] = [leaders.join(', '), `${rate(first.acceptedInterval.median)} accepted/s`];
  if (leaders.length > 1) return `First, and not to be told apart: ${what}, up to ${speed}.`;
  const { toBaseline, comparison } = first;
  const faster = toBaseline !== null && comparison === 'faster';
  const quotient = faster ? `, ${times(toBaseline.median)} times the baseline` : '';
  return `Fastest of them: ${what} with ${speed}${quotient}.`;
}

function everyTrial(results: Results, sweeps: readonly Results[]): Markup {
  const tables = sweeps.map((sweep) =>
    trialsTable(
      sweep,
      `Trials of the sweep over ${sweep.plan.sweep ?? 'one point'}, ${when(sweep.startedAt)}`,
    ),
  );
  return html`<p>One row for each load of each trial. Latencies are those of accepted attempts.</p>
${trialsTable(results, 'Trials')}${tables}`;
}
