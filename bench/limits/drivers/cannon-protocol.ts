/** What the bench and a process of autocannon say to each other. */
import type { Load, LoadNumbers } from '../load.ts';

/** The load of one process. */
export type Cannon = Omit<Load, 'onSent' | 'signal'>;

export type ToCannon = { readonly kind: 'load'; readonly load: Cannon } | { readonly kind: 'go' };

interface Ready {
  readonly kind: 'ready';
}
interface Sent {
  readonly kind: 'sent';
  readonly sent: number;
}
interface Done {
  readonly kind: 'done';
  readonly numbers: LoadNumbers;
}
export type FromCannon = Ready | Sent | Done;

export const isReady = (message: FromCannon): message is Ready => message.kind === 'ready';
export const isSent = (message: FromCannon): message is Sent => message.kind === 'sent';
export const isDone = (message: FromCannon): message is Done => message.kind === 'done';
