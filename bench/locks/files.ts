/** Where the results are written: a folder for each run, a copy of the newest one, and the one that is committed. */
import { cp, mkdir, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { toMarkdown } from './markdown.ts';
import type { LocksResults } from './results.ts';

const canonical = fileURLToPath(new URL('../results/canonical', import.meta.url));

/** Makes the folder of a run: `<out>/locks-2026-11-21T07-38-00Z`. */
export async function makeFolder(out: string, startedAt: Date): Promise<string> {
  const folder = join(out, `locks-${startedAt.toISOString().slice(0, 19).replaceAll(':', '-')}Z`);
  await mkdir(folder, { recursive: true });
  return folder;
}

/** Called after every turn: a run that is killed leaves those that were finished. */
export async function writeResults(folder: string, results: LocksResults): Promise<void> {
  await mkdir(folder, { recursive: true });
  await writeWhole(join(folder, 'locks.json'), `${JSON.stringify(results, null, 2)}\n`);
  await writeWhole(join(folder, 'locks.md'), toMarkdown(results));
}

/** Copies the folder of a run to `<out>/locks-latest`. */
export async function copyToLatest(out: string, folder: string): Promise<void> {
  const latest = join(out, 'locks-latest');
  await rm(latest, { recursive: true, force: true });
  await cp(folder, latest, { recursive: true });
}

/** Replaces the result that is committed. */
export async function writeCanonical(results: LocksResults): Promise<string> {
  await writeResults(canonical, results);
  return canonical;
}

/** A reader sees the old file or the new one, never half of one. */
async function writeWhole(path: string, text: string): Promise<void> {
  await writeFile(`${path}.part`, text);
  await rename(`${path}.part`, path);
}
