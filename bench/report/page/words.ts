/** What the words mean, how it was measured and where, and what the measurement does not show. */
import { number, quantity } from '../../audit/check.ts';
import type { LoadKind } from '../../result.ts';
import type { Results } from '../results.ts';
import { html, listOf, type Markup } from './markup.ts';
import { rate } from './numbers.ts';
import { ownShare } from './share.ts';
import { pointText } from './verdicts.ts';

/** Words and their meanings, in the order in which the page uses them. */
const words: readonly (readonly [word: string, meaning: string])[] = [
  [
    'accepted/s',
    'accepted attempts ÷ seconds from the first invocation to the completion of the last accepted attempt; the median over the rounds',
  ],
  [
    '95 % interval',
    'where the median would be if the run were repeated: a bootstrap over the rounds. With five rounds it is about the range of the five',
  ],
  ['rank', 'by accepted/s. 1= is a tie: the rounds do not tell the strategy from the first of that rank'],
  [
    '× baseline',
    'accepted/s ÷ that of the baseline in the same round; the median of these quotients. Faster or slower is said only when the interval does not span 1 and the difference is beyond the noise; otherwise it is a tie',
  ],
  [
    'closed loop',
    'a fixed number of clients; each sends its next attempt when it has the answer to the one before',
  ],
  [
    'open loop',
    'a rush: attempts come at moments that were fixed before, whether earlier ones were answered or not. Same rate: as many for every strategy. Own share: a share of what the strategy accepted in the closed loop before',
  ],
  [
    'p50, p99',
    'latency of accepted attempts in an open loop, from when the attempt was due until its answer is complete: half of them, or 1 of 100, take longer',
  ],
  [
    'sold out after',
    'closed loop: from the first invocation to the completion of the last accepted attempt, when active orders reached the stock',
  ],
  [
    'round trips',
    'how often a lone accepted attempt waits for a store: requests and answers that alternate on its way',
  ],
  [
    'CPU s per 10,000',
    'CPU seconds of service, Redis and Postgres together for 10,000 completed attempts of the closed loop',
  ],
  [
    'first come',
    'share of the units that went to the first customers to come, as many as there are units; 100 % is strictly first come, first served',
  ],
  ['turned down', 'told busy, or not answered at all'],
  ['replayed', 'a repeat by the same customer that got the same order back'],
  ['busy', 'nothing happened, the client may try again: a lock was not had in time, or a queue was full'],
  ['unknown', 'no answer was seen, or the service said that it does not know'],
  ['unexpected', 'an answer that the contract does not have for a purchase'],
];

const checks: readonly (readonly [word: string, meaning: string])[] = [
  ['oversold', 'active orders beyond the stock'],
  [
    'undersold',
    'units free at the end, beyond those of closed orders, although someone was told that it is sold out; at most one for each such answer',
  ],
  [
    'duplicates',
    'active orders beyond one for a customer, plus customers who were given two different orders',
  ],
  [
    'lost',
    'orders that a customer was told of and that Postgres does not have, or has for another customer or sale',
  ],
  ['phantom', 'orders of customers who were only refused, or never asked'],
  [
    'drift',
    '|sales.sold − active orders| + |what Redis would still sell − (stock − sold)| + reservations that are never settled',
  ],
  [
    'pointsMismatch',
    'orders that have not exactly one points entry, and one reversal if they were closed, plus entries without an order',
  ],
  [
    'returnsMismatch',
    'units that came back from cancelled and expired orders in one store alone, plus customers whom only one store takes for buyers',
  ],
  [
    'paymentsMismatch',
    'orders that are paid or to be refunded without exactly one payment that did it, others that a payment changed, plus payments without an order',
  ],
  [
    'tasksMismatch',
    'tasks (ship and award of a paid order, refund of one to be refunded) that are lost, there twice or for nothing, or dead',
  ],
  [
    'verdict',
    'pass: every check was made and counts 0; fail: a check counts more; unknown: a check could not be made',
  ],
];

export function meanings(): Markup {
  return html`${definitions(words)}
<h3>What the audit checks</h3>
<p>After the load, and in none of its figures, some accepted orders are paid, others are cancelled, and some of those are paid too late, each request twice at the same time. None is cancelled of a sale that may be oversold, so that it is seen by how much. Then the service stops, and the audit reads what clients were told, Postgres and Redis. It knows no strategy.</p>
${definitions(checks)}`;
}

function definitions(entries: readonly (readonly [word: string, meaning: string])[]): Markup {
  return html`<dl>${entries.map(([word, meaning]) => html`<div><dt>${word}</dt><dd>${meaning}</dd></div>`)}</dl>`;
}

export function howMeasured(results: Results): Markup {
  const { plan, commit, startedAt, finishedAt } = results;
  const tuned = Object.entries(plan.serviceEnv).map(([name, value]) => `${name}=${value}`);
  const minutes = Math.max(1, Math.round((Date.parse(finishedAt) - Date.parse(startedAt)) / 60_000));
  return listOf([
    ...plan.load.map((load) => loadText(load, results)),
    `Before each trial ${plan.warmupMs / 1_000} s of the closed loop on a sale of its own: a young process is slower.`,
    `${quantity(plan.rounds, 'round')}. Each runs every strategy once, in an order that rotates; every trial has a fresh ` +
      'service process, a new database and an empty Redis.',
    'Strategies are compared within a round, because the speed of a shared machine changes from minute to minute.',
    'The service turns nobody down because others wait: strategies are compared, not admission.',
    `Seed ${plan.seed}: round n uses seed + n − 1, so every strategy of a round meets the same customers in the same order.`,
    ...(plan.points.length > 1 ? [`Points: ${plan.points.map(pointText).join('; ')}.`] : []),
    ...(tuned.length === 0 ? [] : [`The service ran with ${tuned.join(' ')}.`]),
    html`Commit <code>${commit}</code>. The run took ${quantity(minutes, 'minute')}.`,
  ]);
}

function loadText(load: LoadKind, results: Results): string {
  const { plan } = results;
  const connections = [...new Set(plan.points.map((point) => point.connections))];
  const share = ownShare(results) ?? 'a share';
  const texts: Readonly<Record<LoadKind, string>> = {
    closed:
      `Closed loop: ${number(plan.attempts)} attempts by ${number(plan.buyers)} customers ` +
      `(${number(plan.attempts - plan.buyers)} repeats) for ${quantity(plan.stock, 'unit')}, ` +
      `${connections.map(number).join(', ')} connections; no attempt is begun after ${plan.durationMs / 1_000} s.`,
    open:
      `Open loop, after it: ${plan.rushMs / 1_000} s at ${rate(plan.ratePerSecond)} attempts/s for every strategy, then as long ` +
      `at ${share} of what the strategy accepted in the closed loop of the same round. Attempts come at random moments (a ` +
      'Poisson process), the same for every strategy; most of them find a unit.',
    k6: 'k6: the scripts of bench/load/k6. k6 counts latency from when an attempt was sent, not from when it was due.',
  };
  return texts[load];
}

export function machineFacts({ machine }: Results): Markup {
  return listOf([
    `${machine.cores} × ${machine.cpu}, ${(machine.memoryBytes / 2 ** 30).toFixed(1)} GiB`,
    machine.os,
    `Node ${machine.node}, Postgres ${machine.postgres}, Redis ${machine.redis}`,
  ]);
}

export function limits({ trials }: Results): Markup {
  const invalid = trials.filter((trial) => trial.invalid.length > 0).length;
  const generator =
    invalid === 0
      ? `None of ${quantity(trials.length, 'load')} had to be left out for it.`
      : `${number(invalid)} of ${quantity(trials.length, 'load')} were left out for it.`;
  return listOf([
    'Load, service and stores share one machine and its loopback. Compare the rows with each other, not with another machine. A network would add its round trips, which strategies with many of them pay more often.',
    'Other work on the machine is a part of every figure. Comparing within a round and measuring the baseline twice make that visible; they do not remove it.',
    `The load generator has limits too. Where it was the bottleneck, the load is in no figure. ${generator}`,
    'A closed loop hides waiting: a client that waits sends nothing meanwhile, so a stall costs it one late answer. Latency is therefore told from the open loop.',
    'In the closed loop nobody is turned down: attempts wait as long as it takes, and there is no more load than connections.',
    'Latency is that of accepted attempts. A strategy that turns many down in an open loop may look quick to the few that it accepts: the table under that chart says how many.',
    'How long a commit takes on disk differs from machine to machine. Strategies that commit one order at a time on one row are as fast as that.',
    'CPU time of Redis and Postgres holds what else they did meanwhile.',
    'An audit that passes says that nothing was wrong in these trials, not that nothing can go wrong.',
    'Customers here are patient machines. They come from one place, do not give up, and do not look first.',
  ]);
}
