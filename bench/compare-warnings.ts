/** What makes two runs less comparable, in words. Pure. */
import type { Results } from './report/results.ts';
import type { Point } from './result.ts';

/** Between the machines and the plans of the runs: one line for each, or none. */
export function differences(before: Results, after: Results): string[] {
  return [
    ...different('machines', before, after, machineFacts),
    ...different('plans', before, after, planFacts),
  ];
}

function different(
  what: string,
  before: Results,
  after: Results,
  factsOf: (results: Results) => Readonly<Record<string, unknown>>,
): string[] {
  const [old, now] = [factsOf(before), factsOf(after)];
  const text = (value: unknown): string =>
    typeof value === 'string' ? value : JSON.stringify(value ?? null);
  const parts = Object.keys({ ...old, ...now })
    .filter((name) => text(old[name]) !== text(now[name]))
    .map((name) => `${name} ${text(old[name])} → ${text(now[name])}`);
  return parts.length === 0 ? [] : [`the ${what} differ: ${parts.join(', ')}`];
}

const machineFacts = ({ machine: { memoryBytes, ...rest } }: Results): Readonly<Record<string, unknown>> => ({
  ...rest,
  memory: `${Math.round(memoryBytes / 2 ** 30)} GiB`,
});

/** What strategies there are is told row by row; `connections` is in the points. */
function planFacts({ plan }: Results): Readonly<Record<string, unknown>> {
  const { strategies, locks, connections, points, out, keep, yes, contenders, trials, ...rest } = plan;
  const axis = (name: keyof Point): string => [...new Set(points.map((point) => point[name]))].join();
  return { ...rest, rttMs: axis('rttMs'), connections: axis('connections'), sales: axis('sales') };
}

/** Why one of the runs says less than it could. */
export function weaknesses(side: 'before' | 'after', { partial, trials, plan }: Results): string[] {
  const invalid = trials.filter((trial) => trial.invalid.length > 0).length;
  const rounds = new Set(trials.map(({ round }) => round)).size;
  return [
    ...(partial ? [`the run ${side} is partial: ${rounds} of ${plan.rounds} rounds were begun`] : []),
    ...(rounds < 2
      ? [`the run ${side} has fewer than two rounds, which tell nothing from noise: only audits are compared`]
      : []),
    ...(trials.every(({ twin }) => !twin) && rounds > 1
      ? [
          `the run ${side} measured nothing twice: how noisy it was is not known, and a tie may be told as a change`,
        ]
      : []),
    ...(invalid > 0
      ? [`${invalid} loads of the run ${side} are left out: the generator was the bottleneck`]
      : []),
  ];
}
