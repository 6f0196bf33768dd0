import { number, quantity } from '../kit/text.ts';
import { type CheckResult, type Evidence, tally, unitsOf } from './check.ts';

/**
 * P4: units that are free at the end although an attempt was refused for want of them. A closed order's units may have returned
 * after that answer, so as many free units prove nothing; each further free unit was free all the time. One wrong answer can strand as
 * many units as it asked for, hence the smaller of the two numbers. An attempt answered `busy` may be repeated, and strands nothing.
 */
export function undersold({ history, postgres, activeUnits, closed }: Evidence): CheckResult {
  const { stock } = postgres.sale;
  const free = Math.max(0, stock - activeUnits - unitsOf(closed));
  const refused = history.filter(
    ({ outcome, units = 1 }) => outcome === 'sold-out' || (outcome === 'not-enough-units' && units <= free),
  );
  const count = Math.min(
    free,
    refused.reduce((sum, { units = 1 }) => sum + units, 0),
  );
  const denied = `${quantity(refused.length, 'attempt was', 'attempts were')} answered "sold out", or that too few are left`;
  const words = `${number(free)} of ${number(stock)} units were still free, yet ${denied}`;
  return tally([count, `${words}: ${number(count)} undersold`]);
}
