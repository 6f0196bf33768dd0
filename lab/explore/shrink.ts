/** Makes a schedule with a finding as small as it gets: fewer faults, fewer requests, fewer events out of order. */
import { type Deviations, deviating } from './choose.ts';
import { type Played, play } from './play.ts';
import type { Plan } from './schedule.ts';
import type { ExploreServers } from './servers.ts';

export interface Shrunk {
  readonly plan: Plan;
  readonly played: Played;
  /** Schedules that were played. */
  readonly tries: number;
}

/**
 * @param deviations of the schedule with the finding
 * @returns null: the finding does not come back when it is played again
 */
export async function shrink(
  plan: Plan,
  deviations: Deviations,
  servers: ExploreServers,
  maxTries: number,
): Promise<Shrunk | null> {
  let tries = 0;
  let best: { plan: Plan; kept: Deviations; played: Played } | null = null;
  const attempt = async (smaller: Plan, kept: Deviations): Promise<boolean> => {
    if (best !== null && tries >= maxTries) return false;
    tries++;
    const played = await play(smaller, servers, deviating(kept));
    if (played.findings.length === 0) return false;
    // What was not possible is no deviation.
    best = { plan: smaller, kept: played.deviations, played };
    return true;
  };
  if (!(await attempt(plan, deviations))) return null;
  const now = () => best as NonNullable<typeof best>;

  for (let n = now().plan.faults.length - 1; n >= 0; n--)
    await attempt({ ...now().plan, faults: now().plan.faults.toSpliced(n, 1) }, now().kept);
  for (let n = now().plan.workload.scripts.length - 1; n >= 0; n--) {
    const { workload } = now().plan;
    if (
      await attempt(
        { ...now().plan, workload: { ...workload, scripts: workload.scripts.toSpliced(n, 1) } },
        now().kept,
      )
    )
      continue;
    for (let length = workload.scripts[n]!.length - 1; length > 0; length--) {
      const scripts = now().plan.workload.scripts.with(n, workload.scripts[n]!.slice(0, length));
      if (!(await attempt({ ...now().plan, workload: { ...workload, scripts } }, now().kept))) break;
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
  return { plan: now().plan, played: now().played, tries };
}
