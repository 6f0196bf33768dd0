/** The attempts of an open loop, computed from a seed before the load begins: the same for every strategy. */
import { seededRandom } from '../../lab/kit/random.ts';

/** The name of the n-th customer; all names, and so all requests, are equally long. */
export const buyerName = (index: number): string => `buyer-${String(index).padStart(7, '0')}`;

/**
 * The customer of each attempt, in order. Each of the `buyers` comes once; the other attempts are repeats by customers
 * chosen at random. A repeat comes after its customer's first attempt, at a log-uniform distance: as many repeats fall
 * within 1 to 10 attempts (in flight with the first one) as within 1,000 to 10,000.
 */
export function attemptList(options: { attempts: number; buyers: number; seed: number }): string[] {
  const { attempts, buyers, seed } = options;
  const random = seededRandom(seed);
  const placed: { readonly at: number; readonly buyer: number }[] = [];
  for (let buyer = 0; buyer < buyers; buyer++) placed.push({ at: (buyer * attempts) / buyers, buyer });
  for (let repeat = buyers; repeat < attempts; repeat++) {
    const buyer = Math.floor(random() * buyers);
    const first = (buyer * attempts) / buyers;
    placed.push({ at: first + Math.max(attempts - first, 1) ** random(), buyer });
  }
  placed.sort((a, b) => a.at - b.at || a.buyer - b.buyer);
  return placed.map(({ buyer }) => buyerName(buyer));
}

/**
 * The intended starts of attempts, µs since the load began, ascending: a Poisson process, since customers are independent.
 * Gaps are exponential with mean 1, scaled to the rate: a seed gives the same crowd, denser or sparser.
 * @throws RangeError unless the rate is above 0, the duration not below, and both are finite
 */
export function poisson(options: { ratePerSecond: number; durationMs: number; seed: number }): Float64Array {
  const { ratePerSecond, durationMs, seed } = options;
  if (!(ratePerSecond > 0 && durationMs >= 0 && Number.isFinite(ratePerSecond * durationMs))) {
    throw new RangeError(`no schedule for ${ratePerSecond} attempts/s and ${durationMs} ms`);
  }
  const random = seededRandom(seed);
  // Half a step of `random` keeps it from 0 and from 1: a gap is finite, and more than 0.
  const gapUs = (): number => (-Math.log(random() + 2 ** -33) * 1e6) / ratePerSecond;
  const starts: number[] = [];
  for (let us = gapUs(); us < durationMs * 1_000; us += gapUs()) starts.push(us);
  return Float64Array.from(starts);
}
