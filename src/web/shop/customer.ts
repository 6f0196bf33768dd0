/** The visitor's identity, kept for this tab. All other data comes from the server. */
import { signal } from '@preact/signals';
import { ask, type Order } from '../ui/api.ts';

const KEY = 'stampede.customer';

/** A name with AUTH=none, the issuer's token with AUTH=jwt; empty: not chosen yet. */
export const identity = signal(sessionStorage.getItem(KEY) ?? '');

export function become(text: string): void {
  identity.value = text;
  sessionStorage.setItem(KEY, text);
}

/** The subject of the visitor's token, which a renewed token has, too; empty: there is none. */
export function subject(): string {
  const payload = identity.value.split('.')[1] ?? '';
  try {
    return String(JSON.parse(atob(payload.replaceAll('-', '+').replaceAll('_', '/'))).sub ?? '');
  } catch {
    return '';
  }
}

export type Auth = 'none' | 'jwt';

/** Credentials for the routes of a customer's orders. */
export const tokenFor = (auth: Auth) => (auth === 'jwt' ? { token: identity.value } : {});

/** The visitor's order in a sale. */
export const findOrder = (auth: Auth, saleId: number) => {
  const query = auth === 'jwt' ? '' : `?userId=${encodeURIComponent(identity.value)}`;
  return ask<Order>(`/sales/${saleId}/orders${query}`, tokenFor(auth));
};

/** Whether the customer has it, rather than may place another. */
export const isActive = ({ status }: Order): boolean => status === 'pending' || status === 'paid';
