/** `npm run bench -- --report`: makes the reports of a run once more, with the sweeps of other runs in them. */
import { readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { exitCodes, refuse } from '../command.ts';
import { summarize } from '../summary.ts';
import { writeReports } from './files.ts';
import type { Results } from './results.ts';

/** @param paths a run's results.json, then those of its sweeps. @returns the exit code */
export async function reportCommand(paths: readonly string[]): Promise<number> {
  const [main, ...others] = paths;
  if (main === undefined)
    return refuse(['--report needs a results.json, and may have those of sweeps behind it']);
  const read = await Promise.all([main, ...others].map(readResults));
  const mistakes = read.filter((one) => typeof one === 'string');
  if (mistakes.length > 0) return refuse(mistakes);
  const [results, ...sweeps] = read.filter((one) => typeof one !== 'string');
  if (results === undefined) return exitCodes.usage;
  const folder = dirname(main);
  await writeReports(folder, results, sweeps);
  process.stdout.write(`report: ${folder}/report.html, report.md\n`);
  return exitCodes.success;
}

/** What a results.json holds, its summary made anew from its trials; or what is wrong with the file, and what to do. */
export async function readResults(path: string): Promise<Results | string> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    return `${path} cannot be read (${(error as NodeJS.ErrnoException).code}): name the results.json of a run`;
  }
  let results: Partial<Results> | null;
  try {
    results = JSON.parse(text) as Partial<Results> | null;
  } catch {
    return `${path} is not JSON: name the results.json of a run`;
  }
  if (results === null || typeof results !== 'object')
    return `${path} is no object: name the results.json of a run`;
  const { schema, trials, plan } = results;
  if (schema !== 1) return `${path} has schema ${schema}: this version reads schema 1`;
  if (!Array.isArray(trials) || plan === undefined)
    return `${path} has no trials: it is not a results.json of npm run bench`;
  if (trials.some(({ point }) => point === undefined))
    return `${path} is of an older version, without points and costs: run the bench once more`;
  const { rows, noise } = summarize(trials, plan.baseline ?? null);
  return { ...(results as Results), summary: rows, noise };
}
