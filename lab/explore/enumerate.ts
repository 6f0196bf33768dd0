/**
 * Every schedule of a small case, instead of chosen ones: two customers, one unit, at most one fault at any step, and at most n events out of
 * order. The first has none, then come those with one, and so on (Emmi, Qadeer, Rakamarić: "Delay-Bounded Scheduling", 2011).
 */
import { type Deviations, deviating } from './choose.ts';
import { type Fault, kindsOf } from './faults.ts';
import { type Played, play } from './play.ts';
import { type Target, usesRedis } from './process.ts';
import type { Plan } from './schedule.ts';
import type { AllServers } from './servers.ts';
import type { Workload } from './workload.ts';

/** Steps until a dead process is started again, and so on. */
const LASTS = 10;
/** Which link or process: those of the first half, and of the second. */
const WHICH = [0.25, 0.75];

export interface Enumerated {
  readonly plan: Plan;
  readonly played: Played;
}

const workloadOf = (isReserving: boolean): Workload => ({
  ...{ stock: 1, maxPerOrder: 1 },
  scripts: [
    [
      { kind: 'buy', user: 'u1', units: 1, at: 0 },
      { kind: 'buy', user: 'u1', units: 1, at: 1 },
    ],
    [{ kind: 'buy', user: 'u2', units: 1, at: 1 }],
    ...(isReserving ? ([[{ kind: 'pass', name: 'reservation-reaper', at: 1 }]] as const) : []),
  ],
});

/**
 * @param most events out of order
 * @param part of `parts` that play at once: each plays other faults
 */
export async function* enumerate(
  target: Target,
  most: number,
  servers: AllServers,
  { part, parts }: { readonly part: number; readonly parts: number },
): AsyncGenerator<Enumerated> {
  const isReserving = usesRedis(target);
  const workload = workloadOf(isReserving);
  const planOf = (faults: readonly Fault[]): Plan => ({
    ...{ ...target, processes: 2, isSynchronous: false, seed: 1, isRecorded: true },
    sales: [{ n: 1, workload, faults }],
  });
  const { alternatives } = await play(planOf([]), servers, () => deviating(new Map()));
  const faults = kindsOf({ isReserving, isSynchronous: false }).flatMap((kind) =>
    alternatives.flatMap((_, step) => WHICH.map((which): Fault => ({ kind, step, which, lasts: LASTS }))),
  );
  const plans = [[], ...faults.map((fault) => [fault])].filter((_, n) => n % parts === part);
  let level: { readonly faults: readonly Fault[]; readonly deviations: Deviations }[] = plans.map(
    (faults) => ({
      faults,
      deviations: new Map(),
    }),
  );
  for (let count = 0; count <= most; count++) {
    const next: typeof level = [];
    for (const { faults, deviations } of level) {
      const plan = planOf(faults);
      const played = await play(plan, servers, () => deviating(deviations));
      yield { plan, played };
      if (count === most) continue;
      const last = Math.max(-1, ...deviations.keys());
      for (const { step, texts } of played.alternatives)
        if (step > last)
          for (const text of texts) next.push({ faults, deviations: new Map([...deviations, [step, text]]) });
    }
    level = next;
  }
}
