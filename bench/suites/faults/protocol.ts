/** The messages between the lab and a client process. Each event has its moment on the machine's monotonic clock. */
import type { ServerUrls } from '../../../lab/clients/open-lock.ts';

export type ToClient =
  | { readonly kind: 'open'; readonly lock: string; readonly urls: ServerUrls; readonly ttlMs: number }
  /** Acquire within `patienceMs`, write for `workMs`, release. */
  | { readonly kind: 'hold'; readonly resource: string; readonly workMs: number; readonly patienceMs: number }
  | { readonly kind: 'close' };

interface At {
  readonly ns: number;
}

export type FromClient =
  /** The lock is open, or closed. */
  | (At & { readonly kind: 'ready' })
  | (At & { readonly kind: 'failed'; readonly reason: string })
  | (At & { readonly kind: 'asked' | 'wrote' | 'lost' | 'releasing' | 'released' })
  | (At & { readonly kind: 'refused'; readonly reason: string })
  | (At & { readonly kind: 'granted'; readonly fencingToken: number | null });
