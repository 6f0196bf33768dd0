/**
 * Resolves a write whose reply may be lost ("timed out but succeeded").
 *
 *   write ──reply──▶ done
 *     └──no reply──▶ retry, which detects what the write did ──reply──▶ done
 *                      └──no reply for RESOLVE_MS──▶ throws; a compensation runs in the background until the server
 *                                                    replies or the TTL has expired
 *
 * Not covered: a write that the network delivers after its compensation. The lock that it takes expires with its TTL.
 */
import { failureOf } from '../clients.ts';
import type { Compensations } from './compensations.ts';

/** How long to retry after a lost reply. ioredis needs about 100 ms for a new connection. */
const RESOLVE_MS = 1_000;
const RETRY_MS = 50;

export interface AmbiguousWrite<T> {
  write(): Promise<T>;
  /** Repeats the write idempotently, or reads what it did. */
  retry(): Promise<T>;
  compensate(): Promise<unknown>;
  readonly ttlMs: number;
  readonly compensations: Compensations;
}

/** @throws the error of `write` if its outcome stays unknown */
export async function resolveAmbiguous<T>(request: AmbiguousWrite<T>): Promise<T> {
  const { write, retry, compensate, ttlMs, compensations } = request;
  try {
    return await write();
  } catch (error) {
    if (!failureOf(error).isUnknown) throw error; // it did not run
    const retryUntilMs = performance.now() + RESOLVE_MS;
    while (!compensations.isClosed && performance.now() < retryUntilMs) {
      try {
        return await retry();
      } catch (failure) {
        failureOf(failure);
        await compensations.pause(RETRY_MS);
      }
    }
    compensations.add(() => compensate().then(() => true), ttlMs);
    throw error;
  }
}
