/** report.md: the verdicts first, then what the words mean, where it was measured, and every round's raw numbers. */
import { number } from '../audit/check.ts';
import { label } from '../plan.ts';
import type { TrialResult } from '../result.ts';
import type { SummaryRow } from '../summary.ts';
import type { Results } from './results.ts';
import { cells, columns, findingLines, milliseconds } from './table.ts';

export function toMarkdown(results: Results): string {
  const sections = [
    heading(results),
    markdownTable(
      columns.map(({ title, align }) => [title, align]),
      results.summary.map(cells),
    ),
    'Figures are medians over the rounds; the numbers of the audit are those of the worst round. `1=` is a tie: the ' +
      'rounds do not tell these strategies apart. A strategy whose audit did not pass has no rank.',
    wrongs(results),
    `## Spread over the rounds\n\n${spreadTable(results.summary)}`,
    definitions,
    plan(results),
    machine(results),
    `## Every trial\n\n${trialTable(results.trials)}`,
  ];
  return `${sections.filter((section) => section !== '').join('\n\n')}\n`;
}

function heading({ startedAt, partial, plan, trials }: Results): string {
  const title = '# Stock-deduction strategies compared';
  const when = `Measured ${startedAt.slice(0, 16).replace('T', ' ')} UTC.`;
  if (!partial) return `${title}\n\n${when}`;
  return `${title}\n\n**Partial:** ${trials.length} of ${plan.trials} trials were finished. ${when}`;
}

function wrongs({ summary, shortcomings }: Results): string {
  const lines = findingLines(summary);
  if (lines.length === 0 && shortcomings.length === 0) return '';
  const short = shortcomings.map((text) => `- **${text}**`);
  return ['## What went wrong', '', ...short, ...lines.map((line) => `- ${line}`)].join('\n');
}

function spreadTable(rows: readonly SummaryRow[]): string {
  const range = (
    spread: { min: number; max: number } | undefined,
    text: (value: number) => string,
  ): string => (spread === undefined ? '–' : `${text(spread.min)} … ${text(spread.max)}`);
  const whole = (value: number): string => number(Math.round(value));
  return markdownTable(
    [
      ['strategy', 'left'],
      ['rounds', 'right'],
      ['accepted/s', 'right'],
      ['attempts/s', 'right'],
      ['p50 ms', 'right'],
      ['p99 ms', 'right'],
    ],
    rows.map((row) => [
      label(row),
      String(row.trials),
      range(row.acceptedPerSecond, whole),
      range(row.attemptsPerSecond, whole),
      range(row.latencyMs?.p50, milliseconds),
      range(row.latencyMs?.p99, milliseconds),
    ]),
  );
}

const definitions = `## What the words mean

| word | meaning |
|---|---|
| accepted/s | accepted attempts ÷ seconds from the first invocation to the completion of the last accepted attempt |
| attempts/s | completed attempts ÷ seconds from the first invocation to the last completion |
| p50, p90, p99, max | latency of completed attempts, whatever their outcome: from the moment the request is handed to the socket until its answer is complete; exact percentiles, ms with µs resolution. The loop is closed: a slow answer delays that client's next request, and nothing is corrected for that |
| time to sell out | from the first invocation to the completion of the last accepted attempt, when active orders reached the stock |
| replayed | a repeat by the same user that got the same order back |
| busy | nothing happened, the client may try again (a lock was not had in time, a queue was full) |
| unknown | no answer was seen, or the service said that it does not know |
| unexpected | an answer that the contract does not have for a purchase |
| oversold | active orders beyond the stock |
| undersold | units free at the end, beyond those of closed orders, although someone was told "sold out"; at most one for each such answer |
| duplicates | active orders beyond one for a customer, plus customers who were given two different orders |
| lost | orders that a customer was told of and that Postgres does not have, or has for another customer or sale |
| phantom | orders of customers who were only refused, or never asked |
| drift | \\|sales.sold − active orders\\| + \\|what Redis would still sell − (stock − sold)\\| + reservations that are never settled |
| pointsMismatch | orders that have not exactly one points entry, and one reversal if they were closed, plus entries without an order |
| returnsMismatch | units that came back from cancelled and expired orders in one store alone: still held by them, or Redis was not told, plus customers whom only Redis, or only Postgres, takes for buyers |
| paymentsMismatch | orders that are paid or to be refunded without exactly one payment that did it, others that a payment changed, plus payments without an order |
| tasksMismatch | tasks (ship and award of a paid order, refund of one to be refunded) that are lost, there twice or for nothing, or dead |
| verdict | pass: every check was made and counts 0; fail: a check counts more; unknown: a check could not be made |

After the load, and in none of its figures, some accepted orders are paid, others are cancelled, and some of those are
paid too late, each request twice at the same time. None is cancelled of a sale that may be oversold, so that it is seen
by how much. Then the service stops, and the audit reads the history, Postgres and Redis. It knows no strategy.`;

function plan({ plan, commit }: Results): string {
  const repeats = plan.attempts - plan.buyers;
  const tuned = Object.entries(plan.serviceEnv).map(([name, value]) => `${name}=${value}`);
  return [
    '## Plan',
    '',
    `- ${number(plan.attempts)} attempts by ${number(plan.buyers)} customers (${number(repeats)} repeats) for ` +
      `${number(plan.stock)} units`,
    `- closed loop, ${plan.connections} connections, at most ${plan.durationMs / 1_000} s for a trial, ` +
      `after ${plan.warmupMs / 1_000} s of the same load on a sale of its own`,
    `- ${plan.rounds} ${plan.rounds === 1 ? 'round' : 'rounds'}, every trial in a fresh service process on a new ` +
      'database and an empty Redis; the order rotates every round',
    `- seed ${plan.seed} (round n uses seed + n − 1, the same for all strategies)`,
    ...(tuned.length === 0 ? [] : [`- the service ran with ${tuned.join(' ')}`]),
    `- commit \`${commit}\``,
  ].join('\n');
}

function machine({ machine }: Results): string {
  return [
    '## Machine',
    '',
    `- ${machine.cores} × ${machine.cpu}, ${(machine.memoryBytes / 2 ** 30).toFixed(1)} GiB`,
    `- ${machine.os}, Node ${machine.node}, Postgres ${machine.postgres}, Redis ${machine.redis}`,
    '- load, service and stores share this machine: compare the rows with each other, not with other machines',
  ].join('\n');
}

function trialTable(trials: readonly TrialResult[]): string {
  const titles =
    'attempts accepted replayed sold-out busy unknown unexpected accepted/s attempts/s p50 p90 p99 max';
  return markdownTable(
    [
      ['round', 'right'],
      ['strategy', 'left'],
      ...titles.split(' ').map((title): [string, 'right'] => [title, 'right']),
      ['sold out after s', 'right'],
      ['verdict', 'left'],
    ],
    trials.map((trial) => {
      const { latencyMs, timeToSellOutMs } = trial;
      const latencies =
        latencyMs === null ? [] : [latencyMs.p50, latencyMs.p90, latencyMs.p99, latencyMs.max];
      return [
        String(trial.round),
        label(trial),
        ...[trial.attempts, trial.accepted, trial.replayed, trial.soldOut].map(number),
        ...[trial.busy, trial.unknown, trial.unexpected].map(number),
        ...[trial.acceptedPerSecond, trial.attemptsPerSecond].map((rate) => number(Math.round(rate))),
        ...(latencies.length === 0 ? ['–', '–', '–', '–'] : latencies.map(milliseconds)),
        timeToSellOutMs === null ? '–' : (timeToSellOutMs / 1_000).toFixed(2),
        trial.audit.verdict,
      ];
    }),
  );
}

export function markdownTable(
  titles: readonly (readonly [title: string, align: 'left' | 'right'])[],
  rows: readonly (readonly string[])[],
): string {
  const line = (texts: readonly string[]): string => `| ${texts.join(' | ')} |`;
  return [
    line(titles.map(([title]) => title)),
    `|${titles.map(([, align]) => (align === 'left' ? '---' : '---:')).join('|')}|`,
    ...rows.map(line),
  ].join('\n');
}
