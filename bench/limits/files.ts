/** Where the results are written: a folder for each run, and those that are committed. */
import { mkdir, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import * as report from '../report/files.ts';
import { toMarkdown } from './markdown.ts';
import type { LimitsResults } from './results.ts';

const canonical = fileURLToPath(new URL('../results/canonical', import.meta.url));

/** Makes the folder of a run: `<out>/limits/2026-11-21T07-38-00Z`. */
export function makeFolder(out: string, startedAt: Date): Promise<string> {
  return report.makeFolder(join(out, 'limits'), startedAt);
}

/** Called after every cell: a run that is killed leaves those that were finished. */
export async function writeResults(folder: string, results: LimitsResults): Promise<void> {
  await writeBoth(join(folder, 'results.json'), join(folder, 'report.md'), results);
}

/** Replaces the result that is committed: limits.json, or limits-memory.json, or limits-flat.json. */
export async function writeCanonical(results: LimitsResults, folder = canonical): Promise<string> {
  const name = results.kind === 'ratios' ? 'limits' : `limits-${results.kind}`;
  await mkdir(folder, { recursive: true });
  await writeBoth(join(folder, `${name}.json`), join(folder, `${name}.md`), results);
  return join(folder, `${name}.json`);
}

async function writeBoth(json: string, markdown: string, results: LimitsResults): Promise<void> {
  await writeWhole(json, `${JSON.stringify(results, null, 2)}\n`);
  await writeWhole(markdown, toMarkdown(results));
}

/** A reader sees the old file or the new one, never half of one. */
async function writeWhole(path: string, text: string): Promise<void> {
  await writeFile(`${path}.part`, text);
  await rename(`${path}.part`, path);
}
