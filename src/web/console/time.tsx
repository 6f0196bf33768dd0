/** Instants, short, in the visitor's time zone; the full date is their title. */
import { dateTime, span } from '../ui/format.ts';
import { serverNow } from '../ui/time.ts';

/** The server's clock; before its first event this machine's. */
export const nowMs = (): number => (serverNow() > 1e12 ? serverNow() : Date.now());

const clock = { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' } as const;
const today = new Intl.DateTimeFormat('en', { ...clock, second: '2-digit' });
const otherDay = new Intl.DateTimeFormat('en', { ...clock, month: 'short', day: 'numeric' });

/** `07:06:04`; on another day `Nov 29, 07:06`; or a given text. */
export function Time({ iso, text }: { iso: string; text?: string }) {
  const date = new Date(iso);
  const isToday = date.toDateString() === new Date(nowMs()).toDateString();
  return (
    <time dateTime={iso} title={dateTime(iso)}>
      {text ?? (isToday ? today : otherDay).format(date)}
    </time>
  );
}

/** `in 4 min`, `26 h ago`. */
export function distance(iso: string): string {
  const text = span(Math.abs(Date.parse(iso) - nowMs()) / 1_000);
  return Date.parse(iso) > nowMs() ? `in ${text}` : `${text} ago`;
}
