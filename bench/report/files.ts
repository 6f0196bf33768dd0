/** Writes a run's folder, and points `latest` at it. */
import { cp, mkdir, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { toCsv } from './csv.ts';
import { toJson } from './json.ts';
import { toMarkdown } from './markdown.ts';
import type { Results } from './results.ts';

/** Makes the folder of a run: `<out>/2026-11-21T07-38-00Z`. */
export async function makeFolder(out: string, startedAt: Date): Promise<string> {
  const folder = join(out, `${startedAt.toISOString().slice(0, 19).replaceAll(':', '-')}Z`);
  await mkdir(folder, { recursive: true });
  return folder;
}

/** Removes the folder of a run that finished no trial. */
export async function removeFolder(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true });
}

/** Writes what was measured. Called after every trial: a run that is killed leaves those that were finished. */
export async function writeData(folder: string, results: Results): Promise<void> {
  await Promise.all([
    writeWhole(join(folder, 'results.json'), toJson(results)),
    writeWhole(join(folder, 'results.csv'), toCsv(results.trials)),
  ]);
}

/**
 * Writes all files of a run.
 * @param sweeps results of other runs whose sweeps the reports show, too
 */
export async function writeReports(
  folder: string,
  results: Results,
  sweeps: readonly Results[] = [],
): Promise<void> {
  await writeData(folder, results);
  // Its charts are a large program, which nobody waits for who only mistyped an option.
  const { toHtml } = await import('./html.ts');
  await Promise.all([
    writeWhole(join(folder, 'report.md'), toMarkdown(results, sweeps)),
    writeWhole(join(folder, 'report.html'), toHtml(results, sweeps)),
  ]);
}

/** A reader sees the old file or the new one, never half of one. */
async function writeWhole(path: string, text: string): Promise<void> {
  await writeFile(`${path}.part`, text);
  await rename(`${path}.part`, path);
}

/** Points `<out>/latest` at the folder: a link, or a copy where links cannot be made. */
export async function pointLatest(out: string, folder: string): Promise<void> {
  const latest = join(out, 'latest');
  await rm(latest, { recursive: true, force: true });
  try {
    await symlink(basename(folder), latest, 'dir');
  } catch {
    await cp(folder, latest, { recursive: true });
  }
}
