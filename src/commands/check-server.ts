/**
 * `npm run check-server -- URL`: checks a Postgres, or a pooler, before a service uses it. It works in a new schema, which it drops.
 * Exits with 1 when something is wrong.
 */
import { readArguments } from '../config/arguments.ts';
import { parseEnv } from '../config/env.ts';
import { loadEnvFile } from '../config/env-file.ts';
import { choices } from '../service/core.ts';
import { type Check, checkDatabase } from '../service/server-checks.ts';
import { databaseUrlOf, runCommand, say } from './command.ts';

const HELP = `npm run check-server [-- <URL>]
  <URL>   as DATABASE_URL; without it, DATABASE_URL, whose password is not in the process list. Run it with the URL of the service
          and, for all checks, with that of the owner
  EVENTS  as for the service`;
const WIDTHS = [30, 9] as const;

/** A signal ends it after the check in progress: the schema is dropped. */
const stopping = new AbortController();

/** @returns the exit code */
async function main(): Promise<number> {
  const words = process.argv.slice(2).filter((word) => !word.startsWith('-'));
  const { values } = readArguments({ help: { type: 'boolean' } }, words);
  if (values.help || words.length > 1) {
    say(HELP);
    return values.help ? 0 : 2;
  }
  const fileNames = loadEnvFile();
  const given = words.length === 0 ? {} : { DATABASE_URL: words[0], DATABASE_URL_FILE: '' };
  const config = parseEnv({ ...process.env, ...given }, choices, fileNames);
  say(row('check', 'result', 'found'));
  let wrong = 0;
  for await (const check of checkDatabase(databaseUrlOf(config), config.events, stopping.signal)) {
    report(check);
    wrong += check.problems.length;
  }
  if (!stopping.signal.aborted) say(wrong === 0 ? 'Nothing is wrong.' : `${wrong} to mend.`);
  return Math.sign(wrong);
}

const row = (name: string, result: string, found: string) =>
  `${name.padEnd(WIDTHS[0])}${result.padEnd(WIDTHS[1])}${found}`.trimEnd();

function report({ name, found, problems }: Check): void {
  say(row(name, problems.length === 0 ? 'ok' : 'problem', found));
  for (const text of problems) say(text.replaceAll(/^/gm, '    '));
}

runCommand(main, () => stopping.abort());
