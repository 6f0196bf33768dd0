/** The keys of a sale in Redis, written down a second time: what looks after the service does not ask it where to look. */
import type { SaleKeys } from '../../src/store/redis/scripts.ts';

export function keysOf(saleId: number): SaleKeys {
  const prefix = `stampede:{sale:${saleId}}`;
  return {
    state: `${prefix}:state`,
    counters: `${prefix}:state`,
    segments: `${prefix}:segments`,
    buyers: `${prefix}:buyers`,
    reservations: `${prefix}:reservations`,
    restocks: `${prefix}:restocks`,
  };
}
