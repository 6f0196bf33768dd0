/** One product offered in limited stock between two instants. Amounts are in cents, instants are ISO 8601 UTC. */
export interface Sale {
  readonly id: number;
  readonly name: string;
  /** Plain text; null: there is none. */
  readonly description: string | null;
  /** Address of a picture, `https:`, or `http:` on loopback; null: there is none. */
  readonly imageUrl: string | null;
  /** ISO 4217. */
  readonly currency: string;
  /** In the smallest unit of the currency. */
  readonly priceCents: number;
  /** Units offered. */
  readonly stock: number;
  /** The most units of an order. */
  readonly maxPerOrder: number;
  /** An administrator has paused it: it does not sell. */
  readonly paused: boolean;
  /** How long an order may stay unpaid, in seconds; null: as PAYMENT_WINDOW_S says. */
  readonly paymentWindowS: number | null;
  /** What returned units do for waiting customers: `notify` names the next ones, `hold` places their orders. */
  readonly waitlist: 'notify' | 'hold';
  /** How long such an order may stay unpaid, in seconds; of a sale that holds it is a number. */
  readonly waitlistHoldS: number | null;
  /** Units in active orders; more than the stock when the strategy `unsafe` oversold it. */
  readonly sold: number;
  /** stock − sold; below zero when it is oversold. */
  readonly remaining: number;
  /** The first instant at which the sale sells; null means since ever. */
  readonly startsAt: string | null;
  /** The first instant at which the sale no longer sells; null means for ever. */
  readonly endsAt: string | null;
  /** Length of the lottery at the start, in seconds; missing: there is none. */
  readonly spreadS?: number;
  /** Names the sales over which a customer is limited; missing: the sale has no such limit. */
  readonly limitGroup?: string;
  /** The most units of a customer in active orders of all sales of the group. */
  readonly maxPerCustomer?: number;
}

/** What a customer accepts with an order: it keeps both, however they change. */
export type Offer = Pick<Sale, 'priceCents' | 'paymentWindowS'>;

/** When a sale sells, how many units of it an order may have, and at which offer. */
export type SaleTerms = Pick<Sale, 'startsAt' | 'endsAt' | 'paused' | 'maxPerOrder'> & Offer;

/** Terms as they were at a version of the sale: each change by the service has a greater one. */
export interface VersionedTerms extends SaleTerms {
  readonly version: number;
}

/** A sale without a free unit. */
export interface SoldOut {
  /** Grows whenever a unit or a buyer is added. */
  readonly generation: string;
  /** Until its end; infinite: it has none. */
  readonly sellsForMs: number;
}

/** Units that can be sold. */
export function freeUnits({ remaining }: Sale): number {
  return Math.max(0, remaining);
}

export const saleStates = ['scheduled', 'open', 'paused', 'sold-out', 'ended'] as const;
/** The state of a sale at an instant. */
export type SaleState = (typeof saleStates)[number];
/** How pages show it: a tone, and a text. */
export const shownStates = {
  scheduled: ['warn', 'Opens soon'],
  open: ['good', 'On sale'],
  paused: ['warn', 'Paused'],
  'sold-out': ['bad', 'Sold out'],
  ended: ['plain', 'Ended'],
} as const satisfies Record<SaleState, readonly [tone: string, text: string]>;

const GROUPS: readonly (readonly [title: string, ...states: SaleState[]])[] = [
  ['Now', 'open'],
  ['Coming up or paused', 'scheduled', 'paused'],
  ['Sold out or ended', 'sold-out', 'ended'],
];

/** The parts of a list that have sales: what can be bought, what may be bought later, and what is over. In a part, what changes next comes first. */
export function groupedSales<S extends Pick<Sale, 'startsAt' | 'endsAt'> & { readonly state: SaleState }>(
  sales: readonly S[],
): (readonly [title: string, sales: readonly S[]])[] {
  const nextMs = ({ state, startsAt, endsAt }: S): number =>
    Date.parse((state === 'scheduled' ? startsAt : state === 'open' ? endsAt : null) ?? '9999-01-01');
  return GROUPS.map(([title, ...states]) => {
    const rank = (sale: S) => states.indexOf(sale.state);
    const group = sales.filter((sale) => rank(sale) >= 0);
    return [title, group.sort((a, b) => rank(a) - rank(b) || nextMs(a) - nextMs(b))] as const;
  }).filter(([, group]) => group.length > 0);
}

/** Whether a sale is in its last tenth. */
export const isScarce = (
  { stock, remaining }: Pick<Sale, 'stock' | 'remaining'>,
  state: SaleState,
): boolean => (state === 'open' || state === 'paused') && remaining > 0 && remaining * 10 <= stock;

/** The class of the bar of what is left. */
export const barClass = (remaining: number, stock: number): string =>
  remaining * 10 <= stock ? 'bar warn' : 'bar';

/** The stock of a sale in words. Of the last tenth: `Only 3 left`. */
export function stockText(
  { stock, sold, remaining }: Pick<Sale, 'stock' | 'sold' | 'remaining'>,
  state: SaleState,
): string {
  const count = (n: number) => Math.max(0, n).toLocaleString('en');
  if (state === 'scheduled') return `${count(stock)} units`;
  if (remaining <= 0) return 'Sold out';
  if (state === 'ended') return `${count(sold)} of ${count(stock)} sold`;
  return isScarce({ stock, remaining }, state)
    ? `Only ${count(remaining)} left`
    : `${count(remaining)} of ${count(stock)} left`;
}

/** Whether a name takes more than two lines as the heading of a page, or a description would push the order far down on a phone. */
export const isLong = (text: string, most = 50): boolean => text.length > most;

/** In place of a picture: up to two initials of the name, and one of six colours. */
export function placeholderOf(name: string): { readonly initials: string; readonly hue: number } {
  const words = name.match(/[\p{L}\p{N}]+/gu) ?? ['?'];
  const initials = words.slice(0, 2).map((word) => [...word][0]!.toUpperCase());
  return {
    initials: initials.join(''),
    hue: [...name].reduce((sum, char) => sum + char.codePointAt(0)!, 0) % 6,
  };
}

/** Which sales a list has, the newest first. */
export interface SaleQuery {
  readonly limit: number;
  /** Only those with a smaller id. */
  readonly before?: number | undefined;
  /** Only those whose name has this text, in any case. */
  readonly search?: string | undefined;
  readonly state?: SaleState | undefined;
}

/** @param nowMs by the clock of the store that decides */
export function stateOf(
  sale: Pick<Sale, 'startsAt' | 'endsAt' | 'remaining' | 'paused'>,
  nowMs: number,
): SaleState {
  if (sale.endsAt !== null && nowMs >= Date.parse(sale.endsAt)) return 'ended';
  if (sale.paused) return 'paused';
  if (sale.startsAt !== null && nowMs < Date.parse(sale.startsAt)) return 'scheduled';
  return sale.remaining > 0 ? 'open' : 'sold-out';
}

/** Whether the start of a sale is ahead, also while it is paused. */
export const isComing = (sale: Parameters<typeof stateOf>[0], nowMs: number): boolean =>
  stateOf({ ...sale, paused: false }, nowMs) === 'scheduled';
