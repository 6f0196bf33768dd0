/** Amounts for people. The service counts in the smallest unit of its one currency, such as cents or yen. */

export interface Money {
  /** Decimal places of the currency: 2 for EUR, 0 for JPY, 3 for KWD. */
  readonly digits: number;
  /** In English, like the pages: €49.00, ¥4,900. */
  text(minorUnits: number): string;
}

/** @param currency an ISO 4217 code; null: two decimal places without a currency */
export function moneyIn(currency: string | null): Money {
  const format = new Intl.NumberFormat(
    'en',
    currency === null
      ? { minimumFractionDigits: 2, maximumFractionDigits: 2 }
      : { style: 'currency', currency },
  );
  const digits = format.resolvedOptions().maximumFractionDigits!;
  return { digits, text: (minorUnits) => format.format(minorUnits / 10 ** digits) };
}
