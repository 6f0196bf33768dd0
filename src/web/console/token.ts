/** The administrator's token, in memory only: after a reload the console asks for it again. */
import { signal } from '@preact/signals';
import type { Answer } from '../ui/answers.ts';
import { ask } from '../ui/api.ts';

export const token = signal('');

export function forget(): void {
  token.value = '';
}

/** Reads with the administrator's token. */
export const asAdmin = <T>(path: string): Promise<Answer<T>> => ask<T>(path, { token: token.value });

/** Requests of one press: a store may be busy, or an answer lost. */
const TRIES = 3;
/** Before a request is repeated whose answer was lost, milliseconds. */
const PAUSE_MS = 1_000;

/** Sends a change for one press of a button. Its key makes repeats one effect. */
export async function press<T>(path: string, body: object, method?: 'PATCH'): Promise<Answer<T>> {
  const key = Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(36)).join('-');
  for (let tries = 1; ; tries++) {
    const answer = await ask<T>(path, { token: token.value, key, body, ...(method && { method }) });
    const mayRepeat = answer.kind === 'lost' || (answer.kind === 'problem' && answer.status === 503);
    if (!mayRepeat || tries === TRIES) return answer;
    const pauseMs = (answer.kind === 'problem' && answer.retryMs) || PAUSE_MS;
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
  }
}
