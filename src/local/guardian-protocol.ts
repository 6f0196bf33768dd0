/** What the service and its guardian tell each other. Orders go as arguments: no secret is among them. */
import type { LocalStoreErrorCode } from './errors.ts';
import type { ProcessIdentity } from './processes.ts';

/** The guardian's one argument, as JSON. */
export interface GuardianOrder {
  readonly folder: string;
  readonly postgres: boolean;
  readonly redis: boolean;
  readonly service: ProcessIdentity;
  readonly redisProgram: string | null;
  readonly postgresArgs: readonly string[];
  readonly redisArgs: readonly string[];
}

/** From the guardian to the service. The other way there is only the end of the channel. */
export type GuardianMessage =
  | { readonly type: 'say'; readonly line: string }
  | { readonly type: 'ready'; readonly databaseUrl: string | null; readonly redisUrl: string | null }
  | { readonly type: 'failed'; readonly code: LocalStoreErrorCode; readonly message: string };
