/**
 * `npm run race`: serves the page of the race or, with `--headless`, runs one race and writes its record. Handles options and
 * signals.
 */
import { copyFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { reasonWithoutVariables } from '../../lab/kit/text.ts';
import { onStopSignals } from '../../src/config/stop-signals.ts';
import { strategies } from '../../src/strategies/registry.ts';
import { flag, named, optionLines, readOptions, sized, text, usually } from '../kit/options.ts';
import { makeFolder } from '../kit/results.ts';
import { bounds, defaults, plannedFault, raceFaults, raceOptions } from './options.ts';
import { type PlannedFault, Race } from './race.ts';
import { pictureRace, writeRecord } from './record.ts';
import { openServer } from './server.ts';
import { isRight, type RaceOptions, type RaceView, recoveryText, verdictText } from './view.ts';

const whole = (name: 'customers' | 'units' | 'rate' | 'seed', help: string) => {
  const [min, max] = bounds[name];
  return usually(sized('whole', min, max, help), String(defaults[name]));
};
const lanes = named([...strategies.keys()], 'strategy', `one lane each, at most ${bounds.lanes}`);
const specs = {
  strategies: usually(lanes, defaults.strategies.join()),
  customers: whole('customers', 'of each lane'),
  units: whole('units', 'for sale in each lane'),
  rate: whole('rate', 'customers a second, in each lane'),
  seed: whole('seed', 'of their arrivals'),
  headless: flag('run one race without a page, and write what it showed'),
  fault: text('with --headless: NAME@SECONDS, several with commas between them'),
  out: text('with --headless: where its folder race-<UTC time> goes (bench/results)'),
  canonical: flag('with --headless: also replace the committed picture and figures'),
  port: usually(sized('whole', 0, 65_535, 'of the page; 0: a free one'), '0'),
  help: flag('show this'),
};

const help = `Runs strategies side by side: the same customers, separate services and stores, and faults during the sale.

  npm run race                      opens a page on loopback and prints its URL
  npm run race -- --headless        the same race without a page

${optionLines(specs, {})}

Faults:
${raceFaults.map(({ name, happens }) => `  ${name.padEnd(18)}${happens}`).join('\n')}

All lanes share this machine with their customers: a race shows correctness, not speed. For speed: npm run bench.

Exit code: 0; 1 a strategy that promises to never oversell was not exact, or nothing could be run; 2 bad options; 130 interrupted.
`;

const say = (line: string): void => void process.stderr.write(`${line}\n`);
const interrupt = new AbortController();
const interrupted = new Promise<void>((resolve) =>
  interrupt.signal.addEventListener('abort', () => resolve()),
);

async function main(args: readonly string[]): Promise<number> {
  const mistakes: string[] = [];
  const { values, files } = readOptions(specs, args, mistakes);
  mistakes.push(...files.map((word) => `"${word}" is not an option; --help lists them`));
  const { fault: wanted, out, canonical, headless: isHeadless } = values;
  const faults = (wanted?.split(',') ?? []).flatMap((text) => {
    const planned = plannedFault(text);
    if (planned === null) mistakes.push(`--fault ${text}: must be NAME@SECONDS; --help lists the faults`);
    return planned ?? [];
  });
  for (const [name, value] of Object.entries({ fault: wanted, out, canonical }))
    if (value && !isHeadless) mistakes.push(`--${name} needs --headless`);
  const options = raceOptions(values);
  if (!('rate' in options)) mistakes.push(...options);
  else {
    const endS = options.customers / options.rate;
    for (const { fault, atMs } of faults.filter(({ atMs }) => atMs >= endS * 1_000))
      mistakes.push(
        `--fault ${fault.name}@${atMs / 1_000}: the last customer comes after ${endS.toFixed(1)} s`,
      );
  }
  if (mistakes.length > 0 || !('rate' in options)) {
    for (const mistake of mistakes) say(mistake);
    return 2;
  }
  if (values.help) {
    process.stdout.write(help);
    return 0;
  }
  if (!isHeadless) return onPage(options, values.port);
  return headless(options, faults, out ?? 'bench/results', canonical);
}

async function onPage(options: RaceOptions, port: number): Promise<number> {
  let show = (_view: RaceView): void => {};
  const race = new Race(options, (view) => show(view));
  await using server = await openServer(race, port);
  show = server.show;
  process.stdout.write(`the race: ${server.url}   (Ctrl-C ends it)\n`);
  await interrupted;
  await race.stop();
  return 130;
}

async function headless(
  options: RaceOptions,
  faults: readonly PlannedFault[],
  out: string,
  isCanonical: boolean,
): Promise<number> {
  const startedAt = new Date();
  const race = new Race(options, narrate());
  interrupt.signal.addEventListener('abort', () => void race.stop());
  race.start(options, faults);
  const view = await race.ended();
  if (view.phase === 'idle') return 130;
  if (view.phase === 'failed') throw new Error(view.problem ?? 'the race failed');
  const folder = await makeFolder(out, startedAt, 'race-');
  process.stdout.write(`${await writeRecord(folder, startedAt, view)}\n\n`);
  await using server = await openServer(race, 0);
  const pictures = (await pictureRace(server.url, folder)).map((path) => basename(path));
  process.stdout.write(`${folder}: ${['race.json', 'race.md', ...pictures].join(', ')}\n`);
  if (pictures.length === 0) say('no picture: no Chromium on PATH, and CHROMIUM names none');
  const names = ['race.json', ...pictures];
  const canonical = join(import.meta.dirname, '../results/canonical');
  const missed = faults.length - view.strikes.length;
  if (missed > 0) say(`WARNING: ${missed} of the planned faults came too late: every customer had an answer`);
  if (missed > 0) return 1;
  if (isCanonical) for (const name of names) await copyFile(join(folder, name), join(canonical, name));
  return view.lanes.every(({ isSafe, verdict }) => !isSafe || (verdict !== null && isRight(verdict))) ? 0 : 1;
}

/** Prints what changed since the previous view. */
function narrate(): (view: RaceView) => void {
  const said = new Set<string>();
  const once = (line: string): void => {
    if (!said.has(line)) say(line);
    said.add(line);
  };
  return ({ phase, lanes, strikes }) => {
    if (phase !== 'failed') once(phase);
    for (const { title, struckMs } of strikes) once(`${(struckMs / 1_000).toFixed(1)} s: ${title}`);
    for (const { strategy, outages, verdict } of lanes) {
      for (const outage of outages)
        if (outage.recoveredMs !== null) once(`  ${strategy}: ${recoveryText(outage)}`);
      if (verdict !== null) once(`  ${strategy}: ${verdictText(verdict)}. ${verdict.sentence}`);
    }
  };
}

onStopSignals(process, {
  first() {
    say('\nstopping; a second signal ends it at once');
    interrupt.abort();
  },
  later: () => process.exit(130),
});
try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  say(reasonWithoutVariables(error));
  process.exitCode = 1;
}
