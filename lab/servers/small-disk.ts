/** A file system of the lab's own, in memory, that can be filled. Needs root. */
import { execFile } from 'node:child_process';
import { type FileHandle, mkdir, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
const BLOCK = 4_096;
const CHUNK = 1_024 * BLOCK;

export interface SmallDisk extends AsyncDisposable {
  /** Takes every free block. */
  fill(): Promise<void>;
  /** Frees what `fill` took. */
  clear(): Promise<void>;
}

/** @param folder where it is mounted; created when missing */
export async function mountSmallDisk(folder: string, megabytes: number): Promise<SmallDisk> {
  await mkdir(folder, { recursive: true });
  await run('mount', ['-t', 'tmpfs', '-o', `size=${megabytes}m,mode=0755`, 'stampede-lab', folder]);
  const ballast = join(folder, 'ballast');
  return {
    async fill() {
      const file = await open(ballast, 'a');
      for (const size of [CHUNK, BLOCK]) await writeUntilFull(file, Buffer.alloc(size, 1));
      await file.close();
    },
    clear: () => rm(ballast, { force: true }),
    // A server process that is still ending keeps the file system, which goes with that process.
    [Symbol.asyncDispose]: async () => void (await run('umount', ['--lazy', folder])),
  };
}

async function writeUntilFull(file: FileHandle, bytes: Buffer): Promise<void> {
  for (;;) {
    const error = await file.write(bytes).then(
      () => null,
      (error: NodeJS.ErrnoException) => error,
    );
    if (error?.code === 'ENOSPC') return;
    if (error !== null) throw error;
  }
}
