/** Makes a schedule with a finding as small as it gets: fewer faults, fewer requests, fewer events out of order. */
import { type Deviations, deviating } from './choose.ts';
import { type Played, play } from './play.ts';
import type { Plan } from './schedule.ts';
import type { AllServers } from './servers.ts';

export interface Shrunk {
  readonly plan: Plan;
  readonly played: Played;
}

type Sale = Plan['sales'][number];

/**
 * @param deviations of the world with the finding
 * @returns null: the finding does not come back when it is played again
 */
export async function shrink(
  plan: Plan,
  deviations: Deviations,
  servers: AllServers,
  maxTries: number,
): Promise<Shrunk | null> {
  let tries = 0;
  let best: { plan: Plan; kept: Deviations; played: Played } | null = null;
  const attempt = async (smaller: Plan, kept: Deviations): Promise<boolean> => {
    if (best !== null && tries >= maxTries) return false;
    tries++;
    const played = await play(smaller, servers, () => deviating(kept));
    if (played.findings.length === 0) return false;
    // What was not possible is no deviation.
    best = { plan: smaller, kept: played.deviations, played };
    return true;
  };
  if (!(await attempt(plan, deviations))) return null;
  const now = () => best as NonNullable<typeof best>;
  const withSale = (n: number, sale: Sale) =>
    attempt({ ...now().plan, sales: now().plan.sales.with(n, sale) }, now().kept);

  // A world of the last sales, then of the first ones.
  for (let n = now().plan.sales.length - 1; n >= 0; n--)
    if (now().plan.sales.length > 1)
      await attempt({ ...now().plan, sales: now().plan.sales.toSpliced(n, 1) }, now().kept);
  for (const n of now().plan.sales.keys()) {
    const sale = () => now().plan.sales[n]!;
    for (let f = sale().faults.length - 1; f >= 0; f--)
      await withSale(n, { ...sale(), faults: sale().faults.toSpliced(f, 1) });
    const withScripts = (scripts: Sale['workload']['scripts']) =>
      withSale(n, { ...sale(), workload: { ...sale().workload, scripts } });
    for (let s = sale().workload.scripts.length - 1; s >= 0; s--) {
      const { scripts } = sale().workload;
      if (await withScripts(scripts.toSpliced(s, 1))) continue;
      for (let length = scripts[s]!.length - 1; length > 0; length--)
        if (!(await withScripts(sale().workload.scripts.with(s, scripts[s]!.slice(0, length))))) break;
    }
  }
  // Half of the deviations at a time, then a quarter, down to each (Zeller's ddmin).
  for (let size = Math.ceil(now().kept.size / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2))
    for (let from = 0; from < now().kept.size; ) {
      const all = [...now().kept];
      const isSmaller = await attempt(now().plan, new Map(all.toSpliced(from, size)));
      if (!isSmaller) from += size;
      if (tries >= maxTries) break;
    }
  return { plan: now().plan, played: now().played };
}
