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

/** From the guardian to the service. The service only closes the channel. */
export type GuardianMessage =
  | { readonly type: 'progress'; readonly line: string }
  | ({ readonly type: 'ready' } & StoreUrls)
  | { readonly type: 'failed'; readonly code: LocalStoreErrorCode; readonly message: string };
