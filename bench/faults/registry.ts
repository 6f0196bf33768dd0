/** Every fault that locks meet, in the order of the columns. */
import { answerLost } from './answer-lost.ts';
import { clockAhead } from './clock-ahead.ts';
import type { LockFault } from './fault.ts';
import { holderKilled } from './holder-killed.ts';
import { holderPaused } from './holder-paused.ts';
import { longWork } from './long-work.ts';
import { networkSilent } from './network-silent.ts';
import { nodeEmpty } from './node-empty.ts';
import { nodeEmptyLate } from './node-empty-late.ts';
import { serverEmpty } from './server-empty.ts';
import { serverRestarted } from './server-restarted.ts';
import { splitBrain } from './split-brain.ts';

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
];
