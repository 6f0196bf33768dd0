/** Groups items by sale; sales and members keep their order. */
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
