/** The frame of every trial with a service: fresh stores ─▶ `serve`: start ─▶ load ─▶ settle ─▶ stop ─▶ the suite's audit. */
import { type Service, type ServiceSettings, startService } from '../../lab/service.ts';

export interface Served<T> {
  readonly result: T;
  /** The service ended by itself. */
  readonly died: boolean;
  /** How the service ended, if not in order. */
  readonly findings: readonly string[];
}

/**
 * Starts a service, uses it, and stops it.
 * @param use loads it and waits until the stores are settled; `end` fires with `signal`, or when the service dies
 * @throws the reason of `signal`, what `use` throws, or why the service did not start
 */
export async function serve<T>(
  settings: ServiceSettings,
  signal: AbortSignal,
  use: (service: Service, end: AbortSignal) => Promise<T>,
): Promise<Served<T>> {
  await using service = await startService(settings, { signal });
  const result = await use(service, AbortSignal.any([signal, service.died]));
  signal.throwIfAborted();
  const died = service.died.aborted;
  const stopped = await service.stop();
  if (died) {
    const last = service.tail().slice(-3).join(' | ');
    return { result, died, findings: [`the service died; it logged last: ${last}`] };
  }
  return { result, died, findings: stopped ? [] : ['the service did not stop in order after the load'] };
}
