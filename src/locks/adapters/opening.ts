/** Clients that connect. */
import type { RedisClient } from '../clients.ts';

/** A client that is connecting, and goes on trying until it is closed. */
export interface Opening {
  readonly client: RedisClient;
  /** The result of its first try. */
  readonly connected: Promise<unknown>;
}

/** @throws what connecting throws; the client is closed then */
export async function whenConnected({ client, connected }: Opening): Promise<RedisClient> {
  try {
    await connected;
    return client;
  } catch (error) {
    await client.close();
    throw error;
  }
}
