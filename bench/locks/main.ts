/** `npm run bench:locks`: measures the locks side by side. Reads the command line and signals; every step is elsewhere. */
import { exitCodes, refuse, runCommand, say } from '../command.ts';
import { chosen, everyone } from './contenders.ts';
import { helpText, parseOptions } from './options.ts';
import { runAll } from './run.ts';
import { openServerRoom } from './servers.ts';

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

await runCommand(main, 'finished measurements are kept');
