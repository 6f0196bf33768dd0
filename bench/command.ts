/** What every command of the bench does round its work: exit codes, what people are told, and Ctrl-C. */

/** The exit codes of all commands; each one's help says what is a success. */
export const exitCodes = { success: 0, failure: 1, usage: 2, interrupted: 130 } as const;

/** Tells people, beside what the command prints. */
export function say(line: string): void {
  process.stderr.write(`${line}\n`);
}

/** Tells what is wrong with the command line. @returns the exit code */
export function refuse(mistakes: readonly string[]): number {
  for (const mistake of mistakes) say(mistake);
  return exitCodes.usage;
}

/**
 * Runs a command with its arguments, and sets the exit code. The first signal asks it to stop, a second one leaves at once.
 * @param kept what stays of a run that is stopped, such as "finished rounds are kept"
 */
export async function runCommand(
  command: (args: readonly string[], signal: AbortSignal) => Promise<number>,
  kept: string,
): Promise<void> {
  const interrupt = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    process.on(name, () => {
      if (interrupt.signal.aborted) process.exit(exitCodes.interrupted);
      say(`\nstopping: ${kept}, once more to leave at once`);
      interrupt.abort(new Error('interrupted'));
    });
  }
  try {
    process.exitCode = await command(process.argv.slice(2), interrupt.signal);
  } catch (error) {
    if (!interrupt.signal.aborted) say(error instanceof Error ? error.message : String(error));
    process.exitCode = interrupt.signal.aborted ? exitCodes.interrupted : exitCodes.failure;
  }
}
