/** Starts the service as bench/service.ts does, where the layout has it. */
import { readFileSync } from 'node:fs';
import { cpus } from 'node:os';
import { type Service, startService } from '../service.ts';
import { type Layout, pin } from './pin.ts';

export interface Launch {
  readonly strategy: string;
  readonly confirm: 'durable' | 'accepted';
  /** Several have all processors. */
  readonly workers?: number;
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
  { strategy, confirm, workers = 1, databaseUrl, redisUrl }: Launch,
  place: { readonly layout: Layout; readonly signal: AbortSignal },
): Promise<Service> {
  const env = { ...always, CONFIRM: confirm, WORKERS: String(workers) };
  const settings = { strategy, lock: null, databaseUrl, redisUrl, env };
  const service = await startService(settings, { signal: place.signal });
  try {
    const { server } = place.layout;
    if (workers === 1) await pin(service.pid, server);
    else if (server !== null) for (const pid of family(service.pid)) await pin(pid, `0-${cpus().length - 1}`);
    return service;
  } catch (error) {
    await service[Symbol.asyncDispose]();
    throw error;
  }
}

/** A process and those that it started, where the system tells. */
function family(pid: number): number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
  return [pid, ...(children === '' ? [] : children.split(' ').map(Number))];
}
