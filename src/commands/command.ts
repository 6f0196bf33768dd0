/** What the commands share that end by themselves: `npm run migrate`, `npm run audit` and `npm run reconcile`. */
import { constants } from 'node:os';
import type { Config } from '../config/env.ts';
import { ConfigError, OperatorError } from '../config/errors.ts';
import { onStopSignals } from '../config/stop-signals.ts';
import { LOCAL_FOLDER, readStoreUrls } from '../local/urls.ts';

export const say = (line: string) => process.stdout.write(`${line}\n`);

/** A signal ends the command at once, also as the first process of a container. @param main returns the exit code; 2 when it throws */
export function runCommand(main: () => Promise<number>): void {
  const end = (signal: NodeJS.Signals) => process.exit(128 + constants.signals[signal]);
  onStopSignals(process, { first: end, later: end });
  main().then(
    (code) => {
      process.exitCode = code;
    },
    (error) => {
      process.stderr.write(`${error instanceof OperatorError ? error.message : (error.stack ?? error)}\n`);
      process.exitCode = 2;
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
