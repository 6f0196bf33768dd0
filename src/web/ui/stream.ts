/**
 * Server-sent events by fetch. Unlike EventSource, it can send a token and read the status of a refusal.
 *
 *   hidden ◀──▶ visible: following ──the lock of the path──▶ connected
 *
 *   connecting ──200──▶ live ──ended or silent──▶ connecting, after a growing pause
 *       └──refused──▶ connecting, after `Retry-After`; `onLive` gets the status
 *
 * A browser opens about six connections to a server of HTTP/1.1. So a hidden page has no stream, and of the visible pages with the
 * same path one is connected and sends the others what it receives. Its lock passes on when it is hidden, closed or ended.
 */
import { bearer, retryMsOf } from './api.ts';

export interface StreamHandlers<T> {
  onEvent(event: T): void;
  /** Whether events arrive. @param status of the response; null: there was none, or the stream ended */
  onLive(isLive: boolean, status: number | null): void;
}

/** The service sends something every 5 seconds. */
const SILENT_MS = 12_000;
const PAUSE_MS = { first: 1_000, max: 15_000 };
/** Least pause after a refusal without `Retry-After`. */
const REFUSED_MS = 5_000;

/** An event says when it was sent, on the server's clock. */
interface Timed {
  readonly now: number;
}

/** Events while the page is visible. @returns a function that ends the stream */
export function listen<T extends Timed>(
  path: string,
  token: string,
  handlers: StreamHandlers<T>,
): () => void {
  let end: (() => void) | null = null;
  const update = () => {
    const isVisible = document.visibilityState === 'visible';
    if (isVisible) end ??= share(path, token, handlers);
    else {
      end?.();
      end = null;
    }
  };
  document.addEventListener('visibilitychange', update);
  update();
  return () => {
    document.removeEventListener('visibilitychange', update);
    end?.();
  };
}

/** From the connected page to the others; `join` asks it for the latest. Only a live stream has an event. */
type Shared<T> = 'join' | { readonly event?: T; readonly isLive: boolean; readonly status: number | null };

/** Not shared: a stream with a token, and streams of a page without Web Locks, which need HTTPS or this machine. */
function share<T extends Timed>(
  path: string,
  token: string,
  { onEvent, onLive }: StreamHandlers<T>,
): () => void {
  if (token !== '' || navigator.locks === undefined) return connect(path, token, { onEvent, onLive });
  const ended = new AbortController();
  const channel = new BroadcastChannel(path);
  let latest: (() => Shared<T>) | null = null;
  channel.onmessage = ({ data }: MessageEvent<Shared<T>>) => {
    if (data === 'join') {
      if (latest !== null) channel.postMessage(latest());
    } else if (latest === null) {
      onLive(data.isLive, data.status);
      if (data.event !== undefined) onEvent(data.event);
    }
  };
  channel.postMessage('join');
  const whileConnected = () =>
    new Promise<void>((resolve) => {
      const publish = (shared: () => Shared<T>) => {
        latest = shared;
        channel.postMessage(shared());
      };
      const end = connect<T>(path, token, {
        onEvent(event) {
          // A page that joins later sets its clock by it.
          const aheadMs = event.now - performance.now();
          const current = () => ({ ...event, now: aheadMs + performance.now() });
          publish(() => ({ event: current(), isLive: true, status: 200 }));
          onEvent(event);
        },
        onLive(isLive, status) {
          if (!isLive) publish(() => ({ isLive, status }));
          onLive(isLive, status);
        },
      });
      ended.signal.addEventListener('abort', () => {
        end();
        resolve();
      });
    });
  navigator.locks.request(`stream of ${path}`, { signal: ended.signal }, whileConnected).catch(() => {}); // ended
  return () => {
    ended.abort();
    channel.close();
  };
}

/** @returns a function that ends the connection */
function connect<T>(path: string, token: string, { onEvent, onLive }: StreamHandlers<T>): () => void {
  const stopped = new AbortController();
  let pauseMs = PAUSE_MS.first;

  async function receive(): Promise<void> {
    // One for both ends: AbortSignal.any is newer than the browsers that scripts/build.js names.
    const attempt = new AbortController();
    const { signal } = attempt;
    const abort = () => attempt.abort();
    stopped.signal.addEventListener('abort', abort);
    let silent = setTimeout(abort, SILENT_MS);
    try {
      const response = await fetch(path, { headers: bearer(token), cache: 'no-store', signal });
      if (!response.ok) {
        pauseMs = Math.max(pauseMs, retryMsOf(response) ?? REFUSED_MS);
        return onLive(false, response.status);
      }
      const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
      for (let text = ''; ; ) {
        const { done, value } = await reader.read();
        if (done) break;
        clearTimeout(silent);
        silent = setTimeout(abort, SILENT_MS);
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
      stopped.signal.removeEventListener('abort', abort);
    }
  }

  void (async () => {
    while (!stopped.signal.aborted) {
      await receive();
      // Jitter, so that clients of the same server do not all reconnect at once.
      await new Promise((resolve) => setTimeout(resolve, pauseMs * (0.75 + Math.random() / 2)));
      pauseMs = Math.min(pauseMs * 2, PAUSE_MS.max);
    }
  })();
  return () => stopped.abort();
}
