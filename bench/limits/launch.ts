/** Starts the service as bench/service.ts does, on the processor that the layout gives it. */
import { type Service, startService } from '../service.ts';
import { type Layout, pin } from './pin.ts';

export interface Launch {
  readonly strategy: string;
  readonly confirm: 'durable' | 'accepted';
  readonly databaseUrl: string;
  readonly redisUrl: string;
}

/**
 * No order of a run expires in it, and nobody is turned down: whoever makes the load waits for each answer, so there is no
 * more of it than there are connections.
 */
const always = { PAYMENT_WINDOW_S: '86400', ADMISSION_MS: '60000' };

/** @throws when the service does not start, or cannot be moved */
export async function launchService(
  { strategy, confirm, databaseUrl, redisUrl }: Launch,
  place: { readonly layout: Layout; readonly signal: AbortSignal },
): Promise<Service> {
  const env = { ...always, CONFIRM: confirm };
  const settings = { strategy, lock: null, databaseUrl, redisUrl, env };
  const service = await startService(settings, { signal: place.signal });
  try {
    await pin(service.pid, place.layout.server);
    return service;
  } catch (error) {
    await service[Symbol.asyncDispose]();
    throw error;
  }
}
