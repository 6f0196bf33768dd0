import { type CheckResult, counted, type Evidence, quantity } from './check.ts';

/** P5: orders without exactly one entry in their customer's points, and entries for orders that do not exist. */
export function points({ postgres }: Evidence): CheckResult {
  const customerOf = new Map(postgres.orders.map(({ id, userId }) => [id, userId]));
  const entries = new Map<string, number>();
  let stray = 0;
  for (const { sourceId, userId } of postgres.points) {
    if (customerOf.get(sourceId) === userId) entries.set(sourceId, (entries.get(sourceId) ?? 0) + 1);
    else stray += 1;
  }
  const wrong = postgres.orders.filter(({ id }) => entries.get(id) !== 1).length;
  const findings = [
    wrong > 0 ? `${quantity(wrong, 'order has', 'orders have')} not exactly one points entry` : '',
    stray > 0
      ? `${quantity(stray, 'points entry belongs', 'points entries belong')} to no order of that customer`
      : '',
  ];
  return counted(wrong + stray, findings.filter((finding) => finding !== '').join(', '));
}
