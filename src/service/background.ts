/**
 * Background loops of a service. Each may run in several processes at once, and reports its health for /readyz.
 *
 *   reaper (once before the service serves) · inspection of Redis · expiry · refunds · outbox relay · waitlist · audit log · retention · tasks
 */
import type { Logger } from 'pino';
import { repeatedly, untilNone } from '../concurrency/periodic.ts';
import type { Config } from '../config/env.ts';
import { limits } from '../config/limits.ts';
import { measureAudit, measureOldSnapshots } from '../metrics/instruments.ts';
import { appendPending, auditHead, auditState } from '../store/postgres/audit-log.ts';
import { oldSnapshots } from '../store/postgres/old-snapshots.ts';
import type { PostgresStore } from '../store/postgres/pool.ts';
import { createRetention } from '../store/postgres/retention.ts';
import type { RedisStore } from '../store/redis/connection.ts';
import { commandsFor } from '../store/redis/permissions.ts';
import { taskHandlers } from '../tasks/handlers.ts';
import { startTasks, type Tasks } from '../tasks/tasks.ts';
import type { ClaimDue } from '../tasks/worker.ts';
import type { Closers, Core, Reports } from './core.ts';
import type { Pipeline } from './pipeline.ts';

/** What happens around each claim of due tasks. */
export type AroundClaims = (claim: ClaimDue, lock: Core['lock']) => ClaimDue;

export interface BackgroundContext {
  readonly config: Config;
  readonly core: Core;
  readonly pipeline: Pipeline;
  readonly reports: Reports;
  readonly log: Logger;
  readonly aroundClaims?: AroundClaims | undefined;
}

/** Starts all loops. Returns after the first pass of the reaper. */
export async function startBackground(context: BackgroundContext, closers: Closers): Promise<Tasks> {
  const { config, core, pipeline, reports, log } = context;
  const { postgres, redis } = core;
  if (redis !== null) closers.add(inspectRedis(redis, commandsFor(config), reports));
  const { knownSoldOut } = core.strategy;
  if (knownSoldOut) closers.add(async () => knownSoldOut.close());
  const counts = await pipeline.recover();
  if (Object.values(counts ?? {}).some((n) => n > 0))
    log.info(counts, 'Resolved reservations of an earlier process');
  for (const { everyMs, run } of pipeline.passes) closers.add(repeatedly(everyMs, run));
  measureOldSnapshots(reports.instruments, oldSnapshots(postgres));
  closers.add(keepAuditLog(postgres, reports, log));
  if (config.retentionDays > 0) closers.add(deleteOldRows(config, postgres, reports));
  const tasks = runTasks(context);
  closers.add(() => tasks.stop());
  return tasks;
}

export function runTasks({
  config,
  core,
  reports,
  log,
  aroundClaims,
}: Omit<BackgroundContext, 'pipeline'>): Tasks {
  const { postgres, lock } = core;
  const { instruments, background } = reports;
  return startTasks({
    postgres,
    instruments,
    background,
    aroundClaims: aroundClaims && ((claim) => aroundClaims(claim, lock)),
    handlers: taskHandlers(config, (message, details) => log.info(details, message)),
    log: (message, details) => log.warn(details, message),
  });
}

/** Reports what is wrong with servers of Redis that answer, which of a cluster do not, and what the user may not send. */
function inspectRedis(redis: RedisStore, commands: readonly string[], { background }: Reports) {
  const health = background.loop('redis');
  return repeatedly(limits.inspectEveryMs, async () => {
    const problems = await redis.inspect(commands);
    if (problems.length === 0) health.succeeded('servers');
    else health.failed('servers', new Error(problems.join('; '))); // /readyz has one error of a loop
  });
}

const NOTED =
  'The audit log ends with this head: npm run audit -- verify --head <head> checks later that the log still has it';

/**
 * Appends pending events to the audit log, and writes its head to the service's log, which access to the database cannot change.
 */
function keepAuditLog(
  postgres: PostgresStore,
  { instruments, background }: Reports,
  log: Logger,
): () => Promise<void> {
  measureAudit(instruments, () => auditState(postgres));
  const health = background.loop('audit-log');
  let notedMs = Number.NEGATIVE_INFINITY;
  let noted = '';
  return repeatedly(limits.auditEveryMs, async (isStopped) => {
    await health.step('append', () => untilNone(() => appendPending(postgres), isStopped));
    if (performance.now() - notedMs < limits.auditHeadEveryMs) return;
    const head = await health.step('read the head', () => auditHead(postgres));
    if (head === null) return;
    notedMs = performance.now();
    const text = `${head.id}:${head.hash.toString('hex')}`;
    if (head.id !== '0' && text !== noted) log.info({ head: text }, NOTED);
    noted = text;
  });
}

function deleteOldRows(
  { retentionDays }: Config,
  postgres: PostgresStore,
  { instruments, background }: Reports,
): () => Promise<void> {
  const onDeleted = (table: string, rows: number) => instruments.rowsDeleted.inc({ table }, rows);
  const retention = createRetention(postgres, retentionDays, onDeleted, background.loop('retention'));
  return repeatedly(limits.retention.everyMs, (isStopped) => retention.deleteOld(isStopped));
}
