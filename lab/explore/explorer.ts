/** The process that plays schedules, one after the other: see protocol.ts. */
import { spawnSync } from 'node:child_process';
import { caseOf, nameOf } from './case.ts';
import { enumerate } from './enumerate.ts';
import { type Played, play } from './play.ts';
import type { Target } from './process.ts';
import type { Explore, FromExplorer } from './protocol.ts';
import { current, type Plan } from './schedule.ts';
import { openServers } from './servers.ts';
import { shrink } from './shrink.ts';
import { install, real } from './virtual.ts';

const PROGRESS_MS = 1_000;
/** Schedules that are played to make a finding smaller; later findings of the same request stay as they are. */
const SHRINK_TRIES = 120;
const SHRUNK = 3;

const say = (message: FromExplorer) => process.send?.(message);

// Requests and replies pass between this process and its servers, one at a time: on one processor they need not wake another.
const cpu = process.env.STAMPEDE_EXPLORER_CPU;
if (cpu !== undefined) spawnSync('taskset', ['-a', '-c', '-p', cpu, String(process.pid)]);
const servers = await openServers();
install(() => current.network!.socket());
process.on('message', (message: Explore) => {
  if (message.kind === 'explore') void explore(message).then(() => say({ kind: 'done' }), fail);
});
for (const event of ['disconnect', 'SIGTERM']) process.on(event, () => void end());
process.on('uncaughtException', fail);
say({ kind: 'ready' });

let isEnding = false;

/** The servers end with this process: its command ends it, or has died. What is played meanwhile fails. */
async function end(code = 0): Promise<void> {
  if (isEnding) return;
  isEnding = true;
  await servers[Symbol.asyncDispose]();
  process.exit(code);
}

function fail(error: unknown): void {
  if (!isEnding) console.error(error);
  void end(1);
}

interface Next {
  readonly target: Target;
  readonly plan: Plan;
  readonly played: Played;
}

async function* bySeeds({ targets, seed, stride, count }: Explore): AsyncGenerator<Next> {
  for (let n = 0; count === null || n < count; n++) {
    const target = targets[n % targets.length]!;
    const { plan, choose } = caseOf(target, seed + stride * Math.floor(n / targets.length));
    yield { target, plan, played: await play(plan, servers, choose) };
  }
}

async function* exhaustively({ targets, seed, stride }: Explore, most: number): AsyncGenerator<Next> {
  for (const target of targets)
    for await (const next of enumerate(target, most, servers, { part: seed % stride, parts: stride }))
      yield { target, ...next };
}

async function explore(asked: Explore): Promise<void> {
  const { targets, count, exhaustive } = asked;
  // Prisma loads its engine with its first query, which takes real time.
  for (const target of targets)
    if (target.strategy === 'for-update-prisma') {
      const { plan, choose } = caseOf(target, 0);
      await play(plan, servers, choose);
    }
  let findings = 0;
  let reported = real.nowMs();
  const none = () => ({
    ...{ schedules: {} as Record<string, number>, events: 0, faults: {} as Record<string, number> },
  });
  let since = none();
  let last: readonly string[] = [];
  const report = (isOver = false) => {
    say({ kind: 'progress', ...since, ...(count === 1 && isOver && { timeline: last }) });
    since = none();
    reported = real.nowMs();
  };
  const all = exhaustive === null ? bySeeds(asked) : exhaustively(asked, exhaustive);
  for await (const { target, plan, played } of all) {
    last = played.trace;
    const name = nameOf(target);
    since.schedules[name] = (since.schedules[name] ?? 0) + plan.sales.length;
    since.events += played.trace.length;
    for (const what of played.faults) since.faults[what] = (since.faults[what] ?? 0) + 1;
    if (played.findings.length > 0) await found(target, plan, played, ++findings <= SHRUNK);
    if (real.nowMs() - reported > PROGRESS_MS) report();
  }
  report(true);
}

async function found(target: Target, plan: Plan, played: Played, isShrunk: boolean): Promise<void> {
  const shrunk = isShrunk ? await shrink(plan, played.deviations, servers, SHRINK_TRIES) : null;
  const smallest = shrunk ?? { plan, played };
  say({
    kind: 'finding',
    target,
    seed: plan.seed,
    what: smallest.played.findings,
    timeline: smallest.played.trace,
    size: {
      sales: smallest.plan.sales.length,
      faults: smallest.plan.sales.flatMap(({ faults }) => faults).length,
      requests: smallest.plan.sales.flatMap(({ workload }) => workload.scripts.flat()).length,
      deviations: smallest.played.deviations.size,
    },
  });
}
