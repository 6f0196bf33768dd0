/** locks.md: how it was measured and what that does not show, the comparison, and every figure with its spread. */
import { markdownTable } from '../report/markdown.ts';
import { spread } from '../summary.ts';
import { everyone } from './contenders.ts';
import { type LocksResults, type ShapeName, shapeNames } from './results.ts';
import { cells, columns, shapeCells, shapeColumns } from './table.ts';

export function toMarkdown(results: LocksResults): string {
  const { summary, startedAt, partial } = results;
  const sections = [
    '# Locks compared',
    method(results),
    `${partial ? '**Partial:** the run was interrupted. ' : ''}Measured ${startedAt.slice(0, 16).replace('T', ' ')} UTC.`,
    markdownTable(columns, summary.map(cells)),
    `${legend(results)} A dash: not counted.`,
    wrongs(results),
    ...shapeNames.map((name) => shapeSection(results, name)),
    words(results),
    who(results),
    plan(results),
  ];
  return `${sections.filter((section) => section !== '').join('\n\n')}\n`;
}

function method({ plan: { waiters, processes, durationMs } }: LocksResults): string {
  return (
    `Waiters ask, hold for one turn of the event loop and release in a loop on one resource, for ${durationMs / 1_000} s: ` +
    `first one alone, which does not hold at all, then ${waiters} in one process, then ${waiters} in ${processes} processes. ` +
    'Waiters, servers and bench share one machine and its loopback, so that a round trip costs little, ' +
    'polling costs the others their processor, and figures compare with those of the same run only. Nothing fails ' +
    'here: what a lock does when a holder, a server or the network dies is shown by its contract tests, not by these ' +
    'figures.'
  );
}

/** What the columns are, in a line for the terminal too. */
export function legend({ plan: { waiters, processes, rounds } }: Pick<LocksResults, 'plan'>): string {
  return (
    `Medians of ${rounds} ${rounds === 1 ? 'round' : 'rounds'}. alone: one contender; together: ${waiters} waiters in one ` +
    `process; apart: ${waiters} waiters in ${processes} processes, and all columns to the right of it. p50, p99: hand-off. ` +
    'requests: what clients sent for each grant; commands: what the servers carried out for it. to another: grants that ' +
    'did not go back to the waiter that had just released. order: 1 is first come, first served, 0 a draw.'
  );
}

function wrongs({ shortcomings, failures, summary }: LocksResults): string {
  const refused = summary.flatMap(({ contender, refusals }) =>
    Object.entries(refusals).map(
      ([reason, count]) => `- ${contender}: ${count} acquisitions ended with: ${reason}`,
    ),
  );
  const lines = [
    ...shortcomings.map((text) => `- **${text}**`),
    ...failures
      .filter(({ missing }) => missing)
      .map(({ contender, reason }) => `- ${contender} was left out: ${reason.replaceAll('\n', ' ')}`),
    ...refused,
  ];
  return lines.length === 0 ? '' : ['## What went wrong', '', ...lines].join('\n');
}

const titles: Record<ShapeName, string> = {
  alone: 'Alone: one contender',
  together: 'Together: all waiters in one process',
  apart: 'Apart: the waiters shared out to processes',
};

function shapeSection({ summary }: LocksResults, name: ShapeName): string {
  const rows = summary
    .flatMap(({ contender, shapes }) => {
      const shape = shapes[name];
      return shape === null ? [] : [{ contender, shape }];
    })
    .sort((a, b) => b.shape.perSecond.median - a.shape.perSecond.median);
  if (rows.length === 0) return '';
  const contended = name !== 'alone';
  const body = rows.map(({ contender, shape }) => shapeCells(contender, shape, contended));
  return `## ${titles[name]}\n\n${markdownTable(shapeColumns(contended), body)}`;
}

function words({ scriptCallsCounted }: LocksResults): string {
  const scripts = {
    true: 'with those that scripts called: a script with three calls was seen to count as four',
    false: 'without those that scripts called, which this server does not count',
    null: 'with those that scripts called',
  }[`${scriptCallsCounted}`];
  return `## What the words mean

| word | meaning |
|---|---|
| grants/s | leases granted within the measured time ÷ its length |
| × redis | grants/s ÷ those of \`redis\` in the same round and shape |
| hand-off | from the moment a holder called release to the moment the next holder's acquire resolved, on the clock that all processes of a machine share; exact percentiles |
| to another | share of hand-offs in which the next holder was another waiter than the last one. A lock that polls often goes back to the waiter that released it, which is quick and starves the others. The times beside it are of these hand-offs only |
| wait | from asking to being granted; \`longest\` counts those who still waited at the end, for as long as they had |
| requests | commands and queries that clients sent, for each grant. Counted where they pass in the client, because Redis does not tell them from those that a script called; at the server for ZooKeeper: packets, with pings |
| commands | \`total_commands_processed\` of all servers together for each grant, ${scripts}. With a replica it counts what the replica carries out and its acknowledgements, too. Postgres and ZooKeeper have no such count |
| order | Kendall's tau of each grant and all who waited then, by when they had asked: 1 is first come, first served, 0 a draw, −1 last come, first served |
| oldest first | share of grants that went to the one who had asked longest; first come, first served is 100 %, a draw among n is 100/n % |
| Jain | Jain's index of grants per waiter: 1 when all got as many, 1/n when one of n got everything |
| most ÷ mean | grants of the waiter that got most ÷ mean of all |
| overlaps | grants at a moment at which an earlier holder had not called release yet, of all rounds and shapes together. Two holders that were inside between two looks at the clock are not seen: 0 is no proof, more is one |`;
}

function who({ summary, plan: { contenders } }: LocksResults): string {
  const measured = new Set(summary.map(({ contender }) => contender));
  const list = contenders.filter(({ name }) => measured.has(name));
  const left = everyone.length - list.filter(({ name }) => everyone.some((one) => one.name === name)).length;
  return [
    '## Who was measured',
    '',
    ...list.map(({ name, servers, summary: text }) => `- \`${name}\` (${servers}): ${text}`),
    ...(left === 0 ? [] : ['', `${left} others of \`--locks all\` were not.`]),
  ].join('\n');
}

function plan({
  plan: { rounds, durationMs, warmupMs },
  machine,
  commit,
  measurements,
}: LocksResults): string {
  return [
    '## Plan and machine',
    '',
    `- ${rounds} ${rounds === 1 ? 'round' : 'rounds'}; each measures everyone once, and begins further on in the list`,
    `- ${durationMs / 1_000} s for each measurement, after ${warmupMs / 1_000} s of the same load; new processes and a new ` +
      'resource for each measurement, new servers (a new database in Postgres) for each lock and round',
    '- Redis has no AOF; Postgres and ZooKeeper have a write on disk before they answer it; all as they ship',
    `- commit \`${commit}\``,
    `- ${machine.cores} × ${machine.cpu}, ${(machine.memoryBytes / 2 ** 30).toFixed(1)} GiB`,
    `- ${busyLine(measurements.map(({ busyBefore }) => busyBefore))}`,
    `- ${machine.os}, Node ${machine.node}, Redis ${machine.redis}, Postgres ${machine.postgres}, ZooKeeper ${machine.zookeeper}`,
  ].join('\n');
}

/** What nobody would believe without knowing it. */
function busyLine(shares: readonly number[]): string {
  const percent = (share: number): string => `${Math.round(share * 100)} %`;
  const { median, max } = spread(shares);
  const text = `other work kept the processors ${percent(median)} busy before a lock's turn (median), at most ${percent(max)}`;
  return median > 0.3 ? `**${text}: the figures are low, and far apart**` : text;
}
