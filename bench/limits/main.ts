/** `npm run bench:limits`: measures the service against its platform. Reads the command line and signals only. */
import { access, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { strategies } from '../../src/strategies/registry.ts';
import { exitCodes, refuse, runCommand, say } from '../command.ts';
import { openStores } from '../kit/stores.ts';
import { serviceEntry } from '../service.ts';
import { chooseGenerator } from './generator.ts';
import { pinText } from './markdown.ts';
import { runMemory } from './memory.ts';
import { helpText, type LimitsOptions, parseOptions } from './options.ts';
import { type Layout, layoutOf, meansHere, pin } from './pin.ts';
import { wrongPgbench } from './postgres.ts';
import { runCells } from './run.ts';

async function main(args: readonly string[], signal: AbortSignal): Promise<number> {
  const parsed = parseOptions(args, [...strategies.keys()]);
  if (parsed.kind === 'help') {
    process.stdout.write(helpText());
    return exitCodes.success;
  }
  if (parsed.kind === 'mistakes') return refuse(parsed.mistakes);
  const { options } = parsed;
  const wrong = wrongPgbench();
  if (wrong !== null) return refuse([wrong]);
  const layout = layoutOf(options.pin, meansHere());
  if (options.pin === 'split' && layout.kind === 'none') return refuse([`--pin split: ${layout.why}`]);
  await access(serviceEntry).catch((cause: unknown) => {
    const text = `${serviceEntry} is not there: run the bench with npm run bench:limits, which builds it`;
    throw new Error(text, { cause });
  });
  const folder = await mkdtemp(join(tmpdir(), 'stampede-bench-limits-'));
  try {
    return await runIn(folder, options, layout, signal);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function runIn(
  folder: string,
  options: LimitsOptions,
  layout: Layout,
  signal: AbortSignal,
): Promise<number> {
  const generator = chooseGenerator(options.generator, layout, folder);
  if (typeof generator === 'string') return refuse([generator]);
  // What is started from here on runs where the bench does, and so do the stores; the rest is moved by who starts it.
  await pin(process.pid, layout.stores);
  const local = { databaseUrl: undefined, redisUrl: undefined, keep: false, mayDelete: false };
  await using stores = await openStores({ ...local, say });
  signal.throwIfAborted();
  say(`load: ${generator.name}; ${pinText(layout)}`);
  const run = { options, stores, layout, generator, folder, out: process.stdout, signal };
  // Awaited here: the stores live as long as this function.
  return await (options.only === 'memory' ? runMemory(run) : runCells(run));
}

await runCommand(main, 'finished cells are kept');
