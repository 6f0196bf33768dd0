/** `npm run bench:locks`: measures the locks side by side. Reads the command line and signals; every step is elsewhere. */
import { chosen, everyone } from './contenders.ts';
import { helpText, parseOptions } from './options.ts';
import { exitCodes, runAll } from './run.ts';
import { openServerRoom } from './servers.ts';

const say = (line: string): void => {
  process.stderr.write(`${line}\n`);
};

async function main(args: readonly string[], signal: AbortSignal): Promise<number> {
  const parsed = parseOptions(args);
  if (parsed.kind === 'help') {
    process.stdout.write(helpText(everyone.map(({ name }) => name)));
    return exitCodes.success;
  }
  if (parsed.kind === 'mistakes') return refuse(parsed.mistakes);
  const { options } = parsed;
  const { contenders, mistakes } = chosen(options.locks);
  if (mistakes.length > 0) return refuse(mistakes);
  await using room = await openServerRoom(say);
  // Awaited here: the servers live as long as this function.
  return await runAll({ options, contenders, room, out: process.stdout, signal });
}

function refuse(mistakes: readonly string[]): number {
  for (const mistake of mistakes) say(mistake);
  return exitCodes.usage;
}

const interrupt = new AbortController();
for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
  process.on(name, () => {
    if (interrupt.signal.aborted) process.exit(exitCodes.interrupted);
    say('\nstopping: finished measurements are kept, once more to leave at once');
    interrupt.abort(new Error('interrupted'));
  });
}

try {
  process.exitCode = await main(process.argv.slice(2), interrupt.signal);
} catch (error) {
  say(error instanceof Error ? error.message : String(error));
  process.exitCode = interrupt.signal.aborted ? exitCodes.interrupted : exitCodes.failure;
}
