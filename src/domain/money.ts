/** Amounts for people. The service counts in the smallest unit of a currency, such as cents or yen. */

export interface Money {
  /** Decimal places of the currency: 2 for EUR, 0 for JPY, 3 for KWD. */
  readonly digits: number;
  /** In English, like the pages: €49.00, ¥4,900. */
  text(minorUnits: number): string;
}

const known = new Map<string, Money>();

/** @param currency an ISO 4217 code */
export function moneyIn(currency: string): Money {
  const before = known.get(currency);
  if (before !== undefined) return before;
  const format = new Intl.NumberFormat('en', { style: 'currency', currency });
  const digits = format.resolvedOptions().maximumFractionDigits!;
  const money: Money = { digits, text: (minorUnits) => format.format(minorUnits / 10 ** digits) };
  known.set(currency, money);
  return money;
}
