/** The list of attempts of a trial, known before it starts: the same seed gives the same list to every strategy. */
import { seededRandom } from '../kit/random.ts';

/** The name of the n-th customer; all names are equally long, so that all requests are. */
export function buyerName(index: number): string {
  return `buyer-${String(index).padStart(nameDigits, '0')}`;
}

const nameDigits = 7;

/** The sale that a customer comes for: of several, each has as many customers, and a repeat goes to the same one. */
export function saleOf(saleIds: readonly number[], user: string): number {
  const [first = 0] = saleIds;
  if (saleIds.length === 1) return first;
  return saleIds[Number(user.slice(-nameDigits)) % saleIds.length] ?? first;
}

/**
 * The customer of each attempt, in order. Each of the `buyers` comes once; the other attempts are repeats by customers chosen at
 * random. A repeat never stands before its customer's first attempt, and the distance between them is log-uniform:
 * as many repeats fall within 1 to 10 attempts (so that both are in flight together) as within 1,000 to 10,000.
 */
export function attemptList(options: { attempts: number; buyers: number; seed: number }): string[] {
  const { attempts, buyers, seed } = options;
  const random = seededRandom(seed);
  const placed: { readonly at: number; readonly buyer: number }[] = [];
  for (let buyer = 0; buyer < buyers; buyer++) placed.push({ at: (buyer * attempts) / buyers, buyer });
  for (let repeat = buyers; repeat < attempts; repeat++) {
    const buyer = Math.floor(random() * buyers);
    const first = (buyer * attempts) / buyers;
    const distance = Math.max(attempts - first, 1) ** random();
    placed.push({ at: first + distance, buyer });
  }
  placed.sort((a, b) => a.at - b.at || a.buyer - b.buyer);
  return placed.map(({ buyer }) => buyerName(buyer));
}
