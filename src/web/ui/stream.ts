/**
 * Server-sent events by fetch, which can send a token and sees why a stream is refused; EventSource cannot.
 *
 *   connecting ──200──▶ live ──ended, or silent──▶ connecting, after a pause that grows
 *       └──refused──▶ connecting, after `Retry-After`; `onProblem` learns the problem
 */
import { bearer } from './api.ts';

export interface StreamHandlers<T> {
  onEvent(event: T): void;
  /** Whether events arrive. @param status of the refusal; null: there was no answer, or the stream ended */
  onLive(isLive: boolean, status: number | null): void;
}

/** The service sends something every 5 seconds. */
const SILENT_MS = 12_000;
const PAUSE_MS = { first: 1_000, max: 15_000 };

/** @returns ends it */
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
      // Spread: those who lost the same server do not come back together.
      await new Promise((resolve) => setTimeout(resolve, pauseMs * (0.75 + Math.random() / 2)));
      pauseMs = Math.min(pauseMs * 2, PAUSE_MS.max);
    }
  })();
  return () => stopped.abort();
}
