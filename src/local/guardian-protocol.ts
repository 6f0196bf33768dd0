/** Messages between the service and its guardian. The order is a command-line argument: it contains no secret. */
import type { LocalStoreErrorCode } from './errors.ts';
import type { ProcessIdentity } from './processes.ts';
import type { StoreUrls } from './urls.ts';

/** The guardian's only argument, as JSON. */
export interface GuardianOrder {
  readonly folder: string;
  readonly postgres: boolean;
  readonly redis: boolean;
  readonly service: ProcessIdentity;
  readonly redisProgram: string | null;
  readonly postgresArgs: readonly string[];
  readonly redisArgs: readonly string[];
}

/**
 * From the guardian to the service, which only closes the channel. Other messages are not of this protocol: `node --watch` sends
 * its own over the channel of each child process.
 */
export type GuardianMessage =
  | { readonly stampede: 'progress'; readonly line: string }
  | ({ readonly stampede: 'ready' } & StoreUrls)
  | { readonly stampede: 'failed'; readonly code: LocalStoreErrorCode; readonly message: string };
