/** What an HTTP answer to a purchase means. Called for every answer while the load runs, so it parses no JSON. */
import type { AttemptOutcome } from '../kit/history.ts';

export interface Answer {
  readonly outcome: AttemptOutcome;
  /** The order that the answer names; null where there is none. */
  readonly orderId: string | null;
}

const soldOut: Answer = { outcome: 'sold-out', orderId: null };
const notOpen: Answer = { outcome: 'not-open', orderId: null };
const busy: Answer = { outcome: 'busy', orderId: null };
const unknown: Answer = { outcome: 'unknown', orderId: null };
const unexpected: Answer = { outcome: 'unexpected', orderId: null };

/** An outcome by its status and the last part of the problem's `type`. */
const problems: Readonly<Record<string, Answer>> = {
  '409 sold-out': soldOut,
  '409 sale-not-open': notOpen,
  '503 busy': busy,
  '503 unknown-outcome': unknown,
};

export function readAnswer(status: number, body: string): Answer {
  if (status === 201 || status === 202 || status === 200) {
    const orderId = textField(body, 'orderId');
    if (orderId === null) return unexpected;
    return { outcome: status === 200 ? 'replayed' : 'accepted', orderId };
  }
  const type = textField(body, 'type');
  if (type === null) return unexpected;
  return problems[`${status} ${type.slice(type.lastIndexOf('/') + 1)}`] ?? unexpected;
}

/** The value of the first text field called `name`; values with escapes do not occur in ids and problem types. */
function textField(body: string, name: string): string | null {
  const key = `"${name}":"`;
  const at = body.indexOf(key);
  if (at === -1) return null;
  const from = at + key.length;
  const to = body.indexOf('"', from);
  return to === -1 ? null : body.slice(from, to);
}
