import { number, quantity } from '../kit/text.ts';
import { type CheckResult, type Evidence, tally } from './check.ts';

/**
 * P4: units that are free at the end although an attempt was answered "sold out". A closed order's unit may have returned
 * after that answer, so one free unit per closed order proves nothing; each further free unit was free all the time. One
 * wrong answer can strand one unit at most, hence the smaller of the two numbers. An attempt answered `busy` may be
 * repeated, and strands nothing.
 */
export function undersold({ history, postgres, active, closed }: Evidence): CheckResult {
  const { stock } = postgres.sale;
  const refused = history.filter(({ outcome }) => outcome === 'sold-out').length;
  const free = Math.max(0, stock - active.length - closed.length);
  const count = Math.min(free, refused);
  const denied = `${quantity(refused, 'attempt was', 'attempts were')} answered "sold out"`;
  const words = `${number(free)} of ${number(stock)} units were still free, yet ${denied}`;
  return tally([count, `${words}: ${number(count)} undersold`]);
}
