/** What the commands share that end by themselves: `audit`, `check-server`, `migrate` and `reconcile`. */
import { constants } from 'node:os';
import type { Config } from '../config/env.ts';
import { ConfigError, OperatorError } from '../config/errors.ts';
import { onStopSignals } from '../config/stop-signals.ts';
import { LOCAL_FOLDER, readStoreUrls } from '../local/urls.ts';

export const say = (line: string) => process.stdout.write(`${line}\n`);

/** As a shell reports a process that a signal ended. */
const codeOf = (signal: NodeJS.Signals): number => 128 + constants.signals[signal];

/**
 * Runs a command. A signal is handled although most commands have nothing to stop: as the first process of a container, a process without a
 * handler ignores it.
 * @param main returns the exit code; 2 when it throws
 * @param stop begins to stop `main` at the first signal; without it the signal ends the process
 */
export function runCommand(main: () => Promise<number>, stop?: () => void): void {
  let signalCode: number | null = null;
  onStopSignals(process, {
    first(signal) {
      signalCode = codeOf(signal);
      if (stop === undefined) process.exit(signalCode);
      stop();
    },
    later: (signal) => process.exit(codeOf(signal)),
  });
  main().then(
    (code) => {
      process.exitCode = signalCode ?? code;
    },
    (error) => {
      process.stderr.write(`${error instanceof OperatorError ? error.message : (error.stack ?? error)}\n`);
      process.exitCode = signalCode ?? 2;
    },
  );
}

/** The first Postgres of the service; that of a service with local stores is in its file. @throws ConfigError */
export function databaseUrlOf({ databaseUrl }: Config): string {
  const url = databaseUrl ?? readStoreUrls(LOCAL_FOLDER).databaseUrl;
  if (url !== null) return url;
  throw new ConfigError(['DATABASE_URL must name the Postgres of the service, or the service must run']);
}

/** Those of all cells, each with its name for messages. @throws ConfigError */
export function cellsOf(config: Config): readonly { readonly databaseUrl: string; readonly name: string }[] {
  const urls = [databaseUrlOf(config), ...config.cellDatabaseUrls];
  return urls.map((databaseUrl, cell) => ({ databaseUrl, name: urls.length === 1 ? '' : `cell ${cell}: ` }));
}
