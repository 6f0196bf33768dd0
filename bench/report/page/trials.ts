/** Every load of every trial, raw. */
import { number, quantity } from '../../audit/check.ts';
import { label } from '../../plan.ts';
import type { TrialResult } from '../../result.ts';
import type { Results } from '../results.ts';
import { milliseconds } from '../table.ts';
import { type Cell, type Column, html, type Markup, tableOf } from './markup.ts';
import { rate, seconds } from './numbers.ts';
import { pointText } from './verdicts.ts';

/** @param title of what unfolds */
export function trialsTable({ trials, plan }: Results, title: string): Markup {
  const swept = plan.points.length > 1;
  const columns: readonly Column[] = [
    { title: 'round', align: 'right' },
    { title: 'strategy', align: 'left' },
    { title: 'load', align: 'left' },
    ...(swept ? [{ title: 'point', align: 'left' } as const] : []),
    ...counts.map(([name]) => ({ title: name, align: 'right' }) as const),
    ...['accepted/s', 'p50 ms', 'p90 ms', 'p99 ms', 'max ms', 'sold out after'].map(
      (name) => ({ title: name, align: 'right' }) as const,
    ),
    { title: 'verdict', align: 'left' },
    { title: 'notes', align: 'left' },
  ];
  const rows = trials.map((trial) => cellsOf(trial, swept));
  return html`<details><summary>${title}: ${quantity(rows.length, 'load')}</summary>${tableOf({ columns, rows }, title, 1)}</details>`;
}

const counts: readonly (readonly [name: string, count: (trial: TrialResult) => number])[] = [
  ['attempts', ({ attempts }) => attempts],
  ['accepted', ({ accepted }) => accepted],
  ['replayed', ({ replayed }) => replayed],
  ['sold out', ({ soldOut }) => soldOut],
  ['not open', ({ notOpen }) => notOpen],
  ['busy', ({ busy }) => busy],
  ['unknown', ({ unknown }) => unknown],
  ['unexpected', ({ unexpected }) => unexpected],
];

function cellsOf(trial: TrialResult, swept: boolean): Cell[] {
  const { acceptedLatencyMs: latency, timeToSellOutMs, invalid, notes } = trial;
  const latencies = latency === null ? null : [latency.p50, latency.p90, latency.p99, latency.max];
  return [
    String(trial.round),
    label(trial),
    loadText(trial),
    ...(swept ? [pointText(trial.point)] : []),
    ...counts.map(([, count]) => number(count(trial))),
    rate(trial.acceptedPerSecond),
    ...(latencies?.map(milliseconds) ?? ['–', '–', '–', '–']),
    timeToSellOutMs === null ? '–' : seconds(timeToSellOutMs),
    trial.audit.verdict,
    [...invalid.map((reason) => `left out: ${reason}`), ...notes].join('; '),
  ];
}

/** "closed", "open, 1,000/s", "open, own share: 6,300/s". */
function loadText({ load, rush }: TrialResult): string {
  if (rush === null) return load;
  return `${load}, ${rush.rate === 'share' ? 'own share: ' : ''}${rate(rush.perSecond)}/s`;
}
