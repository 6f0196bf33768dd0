/**
 * Server-sent events by fetch. Unlike EventSource, it can send a token and read the status of a refusal.
 *
 *   connecting ──200──▶ live ──ended or silent──▶ connecting, after a growing pause
 *       └──refused──▶ connecting, after `Retry-After`; `onLive` gets the status
 */
import { bearer } from './api.ts';

export interface StreamHandlers<T> {
  onEvent(event: T): void;
  /** Whether events arrive. @param status of the response; null: there was none, or the stream ended */
  onLive(isLive: boolean, status: number | null): void;
}

/** The service sends something every 5 seconds. */
const SILENT_MS = 12_000;
const PAUSE_MS = { first: 1_000, max: 15_000 };

/** @returns a function that ends the stream */
export function listen<T>(path: string, token: string, { onEvent, onLive }: StreamHandlers<T>): () => void {
  const stopped = new AbortController();
  let pauseMs = PAUSE_MS.first;

  async function connect(): Promise<void> {
    const attempt = new AbortController();
    const signal = AbortSignal.any([stopped.signal, attempt.signal]);
    let silent = setTimeout(() => attempt.abort(), SILENT_MS);
    try {
      const response = await fetch(path, { headers: bearer(token), cache: 'no-store', signal });
      if (!response.ok) {
        pauseMs = Math.max(pauseMs, Number(response.headers.get('Retry-After') ?? 5) * 1_000);
        return onLive(false, response.status);
      }
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = ''; ; ) {
        const { done, value } = await reader.read();
        if (done) break;
        clearTimeout(silent);
        silent = setTimeout(() => attempt.abort(), SILENT_MS);
        const frames = (text + value).split('\n\n');
        text = frames.pop()!;
        for (const frame of frames) {
          if (!frame.startsWith('data: ')) continue;
          pauseMs = PAUSE_MS.first;
          onLive(true, 200);
          onEvent(JSON.parse(frame.slice(6)));
        }
      }
      onLive(false, null);
    } catch {
      if (!stopped.signal.aborted) onLive(false, null);
    } finally {
      clearTimeout(silent);
    }
  }

  void (async () => {
    while (!stopped.signal.aborted) {
      await connect();
      // Jitter, so that clients of the same server do not all reconnect at once.
      await new Promise((resolve) => setTimeout(resolve, pauseMs * (0.75 + Math.random() / 2)));
      pauseMs = Math.min(pauseMs * 2, PAUSE_MS.max);
    }
  })();
  return () => stopped.abort();
}
