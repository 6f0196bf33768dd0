/** What belongs to one sale together, sales and members in the order in which they came. */
export function bySale<T>(items: readonly T[], saleIdOf: (item: T) => number): Map<number, T[]> {
  const groups = new Map<number, T[]>();
  for (const item of items) {
    const saleId = saleIdOf(item);
    const members = groups.get(saleId);
    if (members === undefined) groups.set(saleId, [item]);
    else members.push(item);
  }
  return groups;
}
