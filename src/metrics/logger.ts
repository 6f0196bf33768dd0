/** The log: one JSON object a line, or readable lines on a terminal. */
import { type DestinationStream, type Logger, type LoggerOptions, pino } from 'pino';

export interface LogOptions {
  readonly level: string;
  /** Number of this worker process; null: the service is one process. */
  readonly worker: number | null;
  /** Null: standard output is not a terminal. */
  readonly terminal: NodeJS.WritableStream | null;
  /** Receives the lines in place of standard output. */
  readonly to?: DestinationStream;
}

export async function createLogger({ level, worker, terminal, to }: LogOptions): Promise<Logger> {
  const options: LoggerOptions = {
    level,
    base: worker === null ? null : { worker },
    timestamp: pino.stdTimeFunctions.isoTime,
    serializers: { err: withoutSecrets },
  };
  if (terminal === null) return to === undefined ? pino(options) : pino(options, to);
  const { default: pretty } = await import('pino-pretty');
  const destination = terminal;
  return pino(options, pretty({ destination, sync: true, singleLine: true, translateTime: 'SYS:HH:MM:ss' }));
}

/**
 * Serializes an error without secrets: the arguments of a failed Redis command may include the password, and a Postgres client
 * holds the key that cancels its statements.
 */
function withoutSecrets(error: unknown): unknown {
  if (!(error instanceof Error)) return error; // why an attempt at a task failed
  const { command, client, ...rest } = pino.stdSerializers.err(error) as {
    command?: unknown;
    client?: unknown;
  };
  return rest;
}
