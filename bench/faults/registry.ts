/** Every fault, in the order of the columns. */
import { answerLost } from './answer-lost.ts';
import { bothKilled } from './both-killed.ts';
import { clockAhead } from './clock-ahead.ts';
import { diskFull } from './disk-full.ts';
import type { LockFault } from './fault.ts';
import { holderKilled } from './holder-killed.ts';
import { holderPaused } from './holder-paused.ts';
import { holderServerCut } from './holder-server-cut.ts';
import { leaderCut } from './leader-cut.ts';
import { longWork } from './long-work.ts';
import { networkSilent } from './network-silent.ts';
import { nodeEmpty } from './node-empty.ts';
import { nodeEmptyLate } from './node-empty-late.ts';
import { postgresClock } from './postgres-clock.ts';
import { postgresKilled } from './postgres-killed.ts';
import { postgresPromoted } from './postgres-promoted.ts';
import { postgresSilent } from './postgres-silent.ts';
import { postgresSyncPromoted } from './postgres-sync-promoted.ts';
import { redisClock } from './redis-clock.ts';
import { redisEmptied } from './redis-emptied.ts';
import { redisFailedOver } from './redis-failed-over.ts';
import { redisFull } from './redis-full.ts';
import { redisKilled } from './redis-killed.ts';
import { redisSilent } from './redis-silent.ts';
import { serverEmpty } from './server-empty.ts';
import { serverRestarted } from './server-restarted.ts';
import { serviceKilled } from './service-killed.ts';
import { servicePaused } from './service-paused.ts';
import { splitBrain } from './split-brain.ts';
import { standbyPromoted } from './standby-promoted.ts';
import type { StrategyFault } from './strategy-fault.ts';
import { synchronousPromoted } from './synchronous-promoted.ts';

export const lockFaults: readonly LockFault[] = [
  holderKilled,
  holderPaused,
  longWork,
  answerLost,
  networkSilent,
  serverEmpty,
  serverRestarted,
  splitBrain,
  clockAhead,
  nodeEmpty,
  nodeEmptyLate,
  leaderCut,
  holderServerCut,
  standbyPromoted,
  synchronousPromoted,
];

export const strategyFaults: readonly StrategyFault[] = [
  serviceKilled,
  servicePaused,
  redisKilled,
  redisEmptied,
  redisFailedOver,
  redisSilent,
  redisFull,
  redisClock,
  postgresKilled,
  postgresSilent,
  postgresPromoted,
  postgresSyncPromoted,
  diskFull,
  postgresClock,
  bothKilled,
];
