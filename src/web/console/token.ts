/** The administrator's token, in memory only: after a reload the console asks for it again. */
import { signal } from '@preact/signals';
import { type Answer, ask } from '../ui/api.ts';

export const token = signal('');

export function forget(): void {
  token.value = '';
}

/** Sends a request with the administrator's token. */
export const asAdmin = <T>(path: string, body?: object, method?: 'PATCH'): Promise<Answer<T>> =>
  ask<T>(path, { token: token.value, ...(body && { body }), ...(method && { method }) });
