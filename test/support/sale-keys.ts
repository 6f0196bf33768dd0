/** Keys of a sale under a name of a test's own, for tests of single scripts: where the service has them is its own business. */
import type { SaleKeys } from '../../src/store/redis/scripts.ts';

export function saleKeys(name: string): SaleKeys {
  const prefix = `stampede:{${name}}`;
  const state = `${prefix}:state`;
  const [buyers, reservations] = [`${prefix}:buyers`, `${prefix}:reservations`];
  const [segments, restocks] = [`${prefix}:segments`, `${prefix}:restocks`];
  return { state, counters: state, segments, buyers, reservations, restocks };
}
