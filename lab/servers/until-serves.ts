import { setTimeout as sleep } from 'node:timers/promises';
import type { ServerProcess } from '../../src/local/server-process.ts';

const POLL_MS = 50;

/** Waits until a launched server serves. @throws with its last lines, after killing it, when it ends or takes longer than `withinMs` */
export async function untilServes(
  server: ServerProcess,
  name: string,
  withinMs: number,
  serves: () => Promise<boolean>,
): Promise<void> {
  const untilMs = performance.now() + withinMs;
  while (!(await serves())) {
    if (server.end() !== null || performance.now() > untilMs) {
      await server.kill();
      throw new Error(`${name} did not start (${server.end()}):\n${server.tail()}`);
    }
    await sleep(POLL_MS);
  }
}
