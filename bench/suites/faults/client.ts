/**
 * One customer of a lock, as most programs are written: it acquires, writes while it holds, stops when its lock says that the
 * lease is lost, and releases.
 *
 *   open ─▶ idle ──hold──▶ asking ─▶ holding (a write every few ms) ─▶ work done, or lost ─▶ released ─▶ idle
 *
 * Each step is reported when it happens, so that a killed process leaves what it did. The process serves several trials.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type BenchLock, openLock } from '../../../lab/clients/open-lock.ts';
import { nowNs } from '../../../lab/kit/monotonic.ts';
import type { FromClient, ToClient } from './protocol.ts';

/** Between two writes of a holder. */
const WRITE_MS = 10;
const REFUSED_PAUSE_MS = 20;
const CLOSE_MS = 1_000;

let lock: BenchLock | null = null;
let trial = new AbortController();

const report = (message: FromClient): void => void process.send?.(message);

async function hold(resource: string, workMs: number, patienceMs: number): Promise<void> {
  const { signal } = trial;
  const untilMs = performance.now() + patienceMs;
  report({ kind: 'asked', ns: nowNs() });
  for (;;) {
    const grant = await lock!.acquire(resource, Math.max(1, untilMs - performance.now()), signal);
    if (signal.aborted) return;
    if (typeof grant === 'string') {
      report({ kind: 'refused', ns: nowNs(), reason: grant });
      await sleep(REFUSED_PAUSE_MS);
      continue;
    }
    report({ kind: 'granted', ns: nowNs(), fencingToken: grant.fencingToken });
    grant.lost?.addEventListener('abort', () => report({ kind: 'lost', ns: nowNs() }), { once: true });
    const doneNs = nowNs() + workMs * 1e6;
    while (nowNs() < doneNs && !grant.lost?.aborted && !signal.aborted) {
      report({ kind: 'wrote', ns: nowNs() });
      await sleep(WRITE_MS);
    }
    report({ kind: 'releasing', ns: nowNs() });
    await grant.release().catch(() => {});
    report({ kind: 'released', ns: nowNs() });
    return;
  }
}

async function close(): Promise<void> {
  trial.abort();
  await Promise.race([lock?.close().catch(() => {}), sleep(CLOSE_MS)]);
  lock = null;
  trial = new AbortController();
}

async function obey(message: ToClient): Promise<void> {
  if (message.kind === 'hold') return hold(message.resource, message.workMs, message.patienceMs);
  if (message.kind === 'close') await close();
  else lock = await openLock(message.lock, message.urls, message.ttlMs);
  report({ kind: 'ready', ns: nowNs() });
}

process.on('message', (message: ToClient) => {
  obey(message).catch((error: unknown) => report({ kind: 'failed', ns: nowNs(), reason: String(error) }));
});
// A library that lets a rejection escape is to be seen in the history, not to end the trial.
process.on('unhandledRejection', (error) => report({ kind: 'failed', ns: nowNs(), reason: String(error) }));
process.on('disconnect', () => process.exit(1));
