/** The ids of orders. Pure. */
import { expect, it } from 'vitest';
import { newOrderId, saleOf } from '../../src/orders/order-id.ts';

it.each([1, 255, 2_147_483_647])(
  'an order id of sale %i names it, and is a UUIDv7 of this moment',
  (saleId) => {
    const beforeMs = Date.now();
    const ids = Array.from({ length: 10_000 }, () => newOrderId(saleId));
    expect(new Set(ids.map(saleOf))).toEqual(new Set([saleId]));
    expect(new Set(ids).size).toBe(ids.length);
    for (const id of ids) {
      expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
      const ms = Number.parseInt(id.replace('-', '').slice(0, 12), 16);
      expect(ms).toBeGreaterThanOrEqual(beforeMs);
    }
  },
);
