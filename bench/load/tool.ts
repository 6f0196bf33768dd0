/** Runs a load generator that is a separate program. */

import { startTool, type ToolOptions } from '../../lab/kit/processes.ts';
import { cpuSeconds } from '../kit/cpu.ts';

interface Run extends Pick<ToolOptions, 'command' | 'env'> {
  /** Interrupts the tool. */
  readonly signal: AbortSignal;
  /** It is interrupted after this; null: it ends by itself. */
  readonly durationMs: number | null;
  /** It is killed after this; null: never. */
  readonly withinMs: number | null;
  /** @param end interrupts it */
  readonly onLine?: (line: string, end: () => void) => void;
}

/** How long the tool may take to end after `signal`. */
const interruptMs = 3_000;
const cpuEveryMs = 200;

/** @returns how it ended ("ended with code 0"), its CPU time (null: not known), and its last lines */
export async function runTool({ command, env, signal, durationMs, withinMs, onLine }: Run) {
  let cpuS: number | null = null;
  const readCpu = (): void => {
    cpuS = cpuSeconds(tool.pid) ?? cpuS; // /proc forgets a process that has ended
  };
  const timers: NodeJS.Timeout[] = [];
  const killAfter = (ms: number) => timers.push(setTimeout(() => tool.signal('SIGKILL'), ms));
  let isEnding = false;
  const end = (): void => {
    if (signal.aborted) killAfter(interruptMs);
    if (isEnding) return;
    isEnding = true;
    readCpu();
    tool.signal('SIGINT');
  };
  await using tool = startTool({
    command,
    ...(env && { env }),
    ...(onLine && { onLine: (line) => onLine(line, end) }),
  });
  timers.push(durationMs === null ? setInterval(readCpu, cpuEveryMs) : setTimeout(end, durationMs));
  if (withinMs !== null) killAfter(withinMs);
  signal.addEventListener('abort', end);
  if (signal.aborted) end();
  try {
    return { how: await tool.ended, cpuS: cpuS as number | null, tail: tool.tail() };
  } finally {
    for (const timer of timers) clearTimeout(timer);
    signal.removeEventListener('abort', end);
  }
}
