/** What an HTTP answer to a purchase means. Runs for every answer of a load, even inside k6, so it parses no JSON. */

import type { AttemptOutcome } from '../../lab/history.ts';
import { problemIn } from '../../lab/kit/http.ts';

export interface Answer {
  readonly outcome: AttemptOutcome;
  /** The order that the answer names; null: none. */
  readonly orderId: string | null;
}

/** Outcomes by status and the last part of the problem's `type`. */
const problems: Readonly<Record<string, AttemptOutcome>> = {
  '409 sold-out': 'sold-out',
  '409 not-enough-units': 'not-enough-units',
  '409 sale-not-open': 'not-open',
  '503 busy': 'busy',
  '503 unknown-outcome': 'unknown',
};
const orderIn = /"orderId":"([^"]+)"/;

export function readAnswer(status: number, body: string): Answer {
  if (status === 200 || status === 201 || status === 202) {
    const orderId = orderIn.exec(body)?.[1] ?? null;
    return { outcome: orderId === null ? 'unexpected' : status === 200 ? 'replayed' : 'accepted', orderId };
  }
  return { outcome: problems[`${status} ${problemIn(body)}`] ?? 'unexpected', orderId: null };
}

/** How many characters of an unexpected answer are kept. */
export const quotedLength = 300;

/** The answer to attempt n as a line for `readLines` (recorder.ts). */
export function answerLine(n: number, us: number, status: number, body: string): string {
  const { outcome, orderId } = readAnswer(status, body);
  const quoted = outcome === 'unexpected' ? [body.slice(0, quotedLength)] : [];
  return JSON.stringify([n, us, status, outcome, orderId, ...quoted]);
}
