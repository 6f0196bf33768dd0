/** report.md: the verdicts first, then what the words mean, where it was measured, and every round's raw numbers. */
import { number } from '../audit/check.ts';
import { label } from '../plan.ts';
import type { LoadKind, TrialResult } from '../result.ts';
import type { SummaryRow } from '../summary.ts';
import type { Results } from './results.ts';
import { axisTitles, sweepTable } from './sweep-table.ts';
import { cells, columns, findingLines, milliseconds, noiseText } from './table.ts';
import type { Column } from './terminal-table.ts';

/** @param sweeps results of other runs, whose sweeps are shown, too */
export function toMarkdown(results: Results, sweeps: readonly Results[] = []): string {
  const compared = results.plan.sweep === null;
  const sections = [
    heading(results),
    compared ? markdownTable(columns, results.summary.map(cells)) : '',
    compared
      ? 'Figures are medians over the rounds, with a bootstrap 95 % interval; the numbers of the audit are those of the worst ' +
        'round and load. `1=` is a tie: the rounds do not tell these strategies apart. A strategy whose audit did not pass ' +
        'has no rank.'
      : '',
    compared ? noiseText(results) : '',
    wrongs(results),
    compared ? rushes(results) : '',
    compared ? costs(results) : '',
    ...[results, ...sweeps].map(sweepSection),
    compared ? `## Spread over the rounds\n\n${spreadTable(results.summary)}` : '',
    definitions,
    plan(results),
    machine(results),
    `## Every load of every trial\n\n${trialTable(results.trials)}`,
  ];
  return `${sections.filter((section) => section !== '').join('\n\n')}\n`;
}

function rushes({ summary, plan }: Results): string {
  const rows = summary.flatMap((row) =>
    (['fixed', 'share'] as const).flatMap((rate) => {
      const rush = row.rush[rate];
      return rush === null ? [] : [{ row, rate, rush }];
    }),
  );
  if (rows.length === 0) return '';
  const percent = ({ median }: { readonly median: number }): string => `${(median * 100).toFixed(0)} %`;
  const table = markdownTable(
    [
      ['strategy', 'left'],
      ['arrivals/s', 'right'],
      ['rounds', 'right'],
      ['not counted', 'right'],
      ['p50 ms', 'right'],
      ['p90 ms', 'right'],
      ['p99 ms', 'right'],
      ['accepted', 'right'],
      ['turned down', 'right'],
      ['first come', 'right'],
    ],
    rows.map(({ row, rate, rush }) => [
      `${label(row)}${rate === 'share' ? ', at 70 % of its capacity' : ''}`,
      number(Math.round(rush.perSecond.median)),
      String(rush.rounds),
      String(rush.invalid),
      ...(rush.latencyMs === null
        ? ['–', '–', '–']
        : Object.values(rush.latencyMs).map(({ median }) => milliseconds(median))),
      rush.rounds === 0 ? '–' : percent(rush.acceptedShare),
      rush.rounds === 0 ? '–' : percent(rush.turnedDownShare),
      rush.firstComeShare === null ? '–' : percent(rush.firstComeShare),
    ]),
  );
  return (
    `## In a rush\n\nAn open loop: customers come when they come, ${plan.rushMs / 1_000} s long, whether earlier ones were ` +
    'answered or not. Latency is that of accepted attempts, from the intended start. "First come" is the share of the units ' +
    `that went to those who came first.\n\n${table}`
  );
}

function costs({ summary }: Results): string {
  const rows = summary.filter(
    ({ cost, roundTrips, twin }) => !twin && (cost !== null || roundTrips !== null),
  );
  if (rows.length === 0) return '';
  const text = (value: number | null | undefined, digits: number): string => value?.toFixed(digits) ?? '–';
  const table = markdownTable(
    [
      ['strategy', 'left'],
      ['round trips Redis', 'right'],
      ['round trips Postgres', 'right'],
      ['Redis commands', 'right'],
      ['Postgres transactions', 'right'],
      ['CPU service', 'right'],
      ['CPU Redis', 'right'],
      ['CPU Postgres', 'right'],
    ],
    rows.map((row) => [
      label(row),
      text(row.roundTrips?.redis, 1),
      text(row.roundTrips?.postgres, 1),
      text(row.cost?.redisCommands, 2),
      text(row.cost?.postgresTransactions, 2),
      text(row.cost?.cpu.service, 2),
      text(row.cost?.cpu.redis, 2),
      text(row.cost?.cpu.postgres, 2),
    ]),
  );
  return (
    '## What an attempt costs\n\nRound trips are those of a lone accepted attempt. Commands (those inside scripts included) ' +
    'and transactions are for each attempt under load, when attempts share them; CPU is in seconds for 10,000 attempts, ' +
    `refused ones included.\n\n${table}`
  );
}

function sweepSection(results: Results): string {
  const { sweep, rounds } = results.plan;
  if (sweep === null) return '';
  const table = markdownTable(...sweepTable(results, sweep));
  return `## accepted/s by ${axisTitles[sweep]}\n\nMedians of ${rounds} rounds, closed loop.\n\n${table}`;
}

function heading({ startedAt, partial, plan, trials }: Results): string {
  const title = '# Stock-deduction strategies compared';
  const when = `Measured ${startedAt.slice(0, 16).replace('T', ' ')} UTC.`;
  if (!partial) return `${title}\n\n${when}`;
  const finished = finishedTrials(trials);
  return `${title}\n\n**Partial:** ${finished} of ${plan.trials} trials were finished. ${when}`;
}

/** One trial has as many results as it has loads. */
export function finishedTrials(trials: readonly TrialResult[]): number {
  return new Set(trials.map((trial) => JSON.stringify([label(trial), trial.round, trial.point]))).size;
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
| × base | accepted/s ÷ that of the baseline in the same round, median of the rounds |
| p50, p90, p99, max | in the closed loop, latency of completed attempts, whatever their outcome: from the moment the request is handed to the socket until its answer is complete; exact percentiles, ms with µs resolution. A slow answer delays that client's next request, and nothing is corrected for that |
| rush | an open loop: each attempt is sent at its intended start, and its latency counts from there. Of accepted attempts, unless said otherwise |
| not counted | rounds in which the load generator was the bottleneck: busy for more than 95 % of the time, or late by more than 50 ms for 1 of 100 attempts |
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
  const loads: Readonly<Record<LoadKind, string>> = {
    closed:
      `- closed loop: ${number(plan.attempts)} attempts by ${number(plan.buyers)} customers (${number(repeats)} repeats) for ` +
      `${number(plan.stock)} units, ${[...new Set(plan.points.map(({ connections }) => connections))].join(', ')} connections, ` +
      `at most ${plan.durationMs / 1_000} s`,
    open:
      `- open loop: ${number(plan.ratePerSecond)} arrivals/s for every strategy, then 70 % of what each accepted in the closed ` +
      `loop before; ${plan.rushMs / 1_000} s each, arrivals at random (Poisson), units for 80 % of them`,
    k6: '- k6: bench/load/k6/fixed.ts and rush.ts',
  };
  return [
    '## Plan',
    '',
    ...plan.load.map((kind) => loads[kind]),
    `- each trial warms up for ${plan.warmupMs / 1_000} s with the closed loop on a sale of its own`,
    `- ${plan.rounds} ${plan.rounds === 1 ? 'round' : 'rounds'}, every trial in a fresh service process on a new ` +
      'database and an empty Redis; the order rotates every round',
    '- the service turns nobody down because others wait (`ADMISSION_MS=60000`): strategies are compared, not admission',
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
      ['load', 'left'],
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
        loadText(trial),
        ...[trial.attempts, trial.accepted, trial.replayed, trial.soldOut].map(number),
        ...[trial.busy, trial.unknown, trial.unexpected].map(number),
        ...[trial.acceptedPerSecond, trial.attemptsPerSecond].map((rate) => number(Math.round(rate))),
        ...(latencies.length === 0 ? ['–', '–', '–', '–'] : latencies.map(milliseconds)),
        timeToSellOutMs === null ? '–' : (timeToSellOutMs / 1_000).toFixed(2),
        trial.invalid.length > 0 ? `${trial.audit.verdict}, not counted` : trial.audit.verdict,
      ];
    }),
  );
}

/** "closed, 64", "open, 250/s", "closed, 64, 5 ms, 10 sales". */
function loadText({ load, rush, point }: TrialResult): string {
  const parts: string[] = [load];
  parts.push(rush === null ? String(point.connections) : `${number(Math.round(rush.perSecond))}/s`);
  if (point.rttMs > 0) parts.push(`${point.rttMs} ms`);
  if (point.sales > 1) parts.push(`${point.sales} sales`);
  return parts.join(', ');
}

export function markdownTable(titles: readonly Column[], rows: readonly (readonly string[])[]): string {
  const line = (texts: readonly string[]): string => `| ${texts.join(' | ')} |`;
  return [
    line(titles.map(([title]) => title)),
    `|${titles.map(([, align]) => (align === 'left' ? '---' : '---:')).join('|')}|`,
    ...rows.map(line),
  ].join('\n');
}
