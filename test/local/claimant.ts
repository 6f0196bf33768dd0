/** Claims a folder again and again, and fails when another process has it too. With `hold`: once, prints its shell, and keeps it. */
import { spawn } from 'node:child_process';
import { mkdirSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { Watcher } from '../../src/local/watcher.ts';

const path = process.argv[2] as string;
const inUse = (pid: number) => `held for ${pid}`;
for (let round = 0; round < 8; round++) {
  const watcher = await Watcher.claim({ path, cwd: path, waitMs: 120_000, refusal: () => null, inUse });
  if (process.argv[3] === 'hold') {
    watcher.watch(spawn('sleep', ['600'], { detached: true }));
    console.log(watcher.pid);
    await new Promise(() => {});
  }
  mkdirSync(join(path, 'held'));
  rmdirSync(join(path, 'held'));
  await watcher.end();
}
