/** `npm run bench:profile`: where the service's time goes, and what was tried against it. Reads the command line only. */
import { access, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { exitCodes, refuse, runCommand, say } from '../command.ts';
import { describeCommit, describeMachine, type Machine } from '../kit/machine.ts';
import { numberOption, optionLines, readOptions } from '../command-line.ts';
import { openStores } from '../kit/stores.ts';
import { serviceEntry } from '../service.ts';
import { type ProfileReport, runProfile } from './profile.ts';
import { profileText } from './profile-text.ts';

/** What profile.json holds. */
export interface ProfileResults extends ProfileReport {
  readonly schema: 1;
  readonly startedAt: string;
  readonly commit: string;
  readonly machine: Machine;
}

const specs = {
  rounds: { type: 'string', value: 'n', help: 'rounds; each measures every variant once (5)' },
  attempts: {
    type: 'string',
    value: 'n',
    help: 'attempts that are measured, after as many to warm up (50000)',
  },
  connections: { type: 'string', value: 'n', help: 'connections of the load (512)' },
  out: { type: 'string', value: 'file', help: 'write the figures there, as JSON' },
  canonical: { type: 'boolean', help: 'replace profile.json in bench/results/canonical' },
  help: { type: 'boolean', help: 'show this' },
} as const;

const help = `Tells where the time of an attempt with \`lua\` goes: CPU of service, Redis and Postgres, a profile of the service, and
what some changes would save.

  npm run bench:profile -- [options]

${optionLines(specs, 22)}

Exit code: 0; 1 an attempt was not accepted, or something did not start; 2 bad options; 130 interrupted (nothing is kept).
`;

const canonical = fileURLToPath(new URL('../results/canonical/profile.json', import.meta.url));

async function main(args: readonly string[], signal: AbortSignal): Promise<number> {
  const mistakes: string[] = [];
  const given = readOptions(specs, args, mistakes);
  if (given.has('help') && mistakes.length === 0) {
    process.stdout.write(help);
    return exitCodes.success;
  }
  const whole = (name: 'rounds' | 'attempts' | 'connections', fallback: number, max: number): number =>
    numberOption(given, name, fallback, { min: 1, max, whole: true }, mistakes);
  const options = {
    strategy: 'lua',
    rounds: whole('rounds', 5, 100),
    attempts: whole('attempts', 50_000, 1_000_000),
    connections: whole('connections', 512, 10_000),
  };
  if (mistakes.length > 0) return refuse(mistakes);
  await access(serviceEntry).catch((cause: unknown) => {
    throw new Error(`${serviceEntry} is not there: npm run bench:profile builds it`, { cause });
  });
  const startedAt = new Date().toISOString();
  const commit = await describeCommit();
  const local = { databaseUrl: undefined, redisUrl: undefined, keep: false, mayDelete: false };
  await using stores = await openStores({ ...local, say });
  const report = await runProfile(options, { stores, signal, onStep: say });
  const machine = describeMachine(stores.versions);
  const results: ProfileResults = { schema: 1, startedAt, commit, machine, ...report };
  process.stdout.write(`\n${profileText(results)}\n`);
  const out = given.has('canonical') ? canonical : given.get('out');
  if (out !== undefined) await writeFile(out, `${JSON.stringify(results, null, 2)}\n`);
  return exitCodes.success;
}

await runCommand(main, 'nothing is kept');
