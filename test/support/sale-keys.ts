/** Keys of a sale under a test's name, for tests of single scripts; the service's layout is private to src/store/redis. */
import type { SaleKeys } from '../../src/store/redis/sale-keys.ts';

export function saleKeys(name: string): SaleKeys {
  const prefix = `stampede:{${name}}`;
  const state = `${prefix}:state`;
  const [buyers, reservations] = [`${prefix}:buyers`, `${prefix}:reservations`];
  const [segments, restocks] = [`${prefix}:segments`, `${prefix}:restocks`];
  const turns = `${prefix}:turns`;
  return { state, counters: state, segments, buyers, reservations, restocks, turns };
}
