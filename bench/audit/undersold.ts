import { number, quantity } from '../kit/text.ts';
import { type CheckResult, counted, type Evidence } from './check.ts';

/**
 * P4: units that are free at the end although an attempt was answered "sold out". A closed order's unit may have come back
 * after that was said, so as many units as there are closed orders prove nothing; each further unit that is free at the
 * end was free all the time. One wrong answer can strand one unit at most, hence the smaller of the two numbers; an
 * attempt answered `busy` may be repeated, and strands nothing.
 */
export function undersold({ history, postgres, active, closed }: Evidence): CheckResult {
  const { stock, id } = postgres.sale;
  const refused = history.filter(({ saleId, outcome }) => saleId === id && outcome === 'sold-out').length;
  const free = Math.max(0, stock - active.length - closed.length);
  const count = Math.min(free, refused);
  return counted(
    count,
    `${number(free)} of ${number(stock)} units were still free, yet ` +
      `${quantity(refused, 'attempt was', 'attempts were')} told "sold out": ${number(count)} undersold`,
  );
}
