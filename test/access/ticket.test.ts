/** Tickets: a signed one is read as issued, and nothing else is accepted. */
import { createHmac } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createTickets, type Ticket } from '../../src/access/ticket.ts';

const KEY = Buffer.alloc(32, 'k');
const tickets = createTickets([KEY]);
const time = fc.integer({ min: 0, max: 8.64e15 });
const ticket: fc.Arbitrary<Ticket> = fc.record(
  {
    saleId: fc.integer({ min: 1, max: 2 ** 31 - 1 }),
    customer: fc.stringMatching(/^[A-Za-z0-9._:-]{1,64}$/),
    notBeforeMs: time,
    expiresMs: time,
    isEarly: fc.constant(true as const),
  },
  { requiredKeys: ['saleId', 'customer', 'notBeforeMs', 'expiresMs'] },
);
const bytes = fc.uint8Array({ minLength: 32, maxLength: 64 }).map((array) => Buffer.from(array));

describe('a ticket', () => {
  it('is signed with HMAC-SHA256, and read as it was issued', () => {
    fc.assert(
      fc.property(bytes, ticket, (key, given) => {
        const own = createTickets([key]);
        const text = own.issue(given);
        const end = text.lastIndexOf('.');
        expect(text.slice(end + 1)).toBe(
          createHmac('sha256', key).update(text.slice(0, end)).digest('base64url'),
        );
        expect(own.read(text)).toEqual(given);
      }),
    );
  });

  it('is not read with any character changed, added or left out', () => {
    const change = fc.tuple(fc.nat(), fc.nat({ max: 1 }), fc.string({ maxLength: 2, unit: 'binary' }));
    fc.assert(
      fc.property(ticket, change, (given, [at, removed, added]) => {
        const text = tickets.issue(given);
        const start = at % text.length;
        const altered = text.slice(0, start) + added + text.slice(start + removed);
        fc.pre(altered !== text);
        expect(tickets.read(altered)).toBeNull();
      }),
    );
  });

  it('is not read with a character of which one byte is the right one', () => {
    const text = tickets.issue({ saleId: 1, customer: 'ann', notBeforeMs: 0, expiresMs: 1 });
    for (const at of [2, text.length - 1]) {
      const other = String.fromCharCode(0x5400 + text.charCodeAt(at));
      expect(tickets.read(text.slice(0, at) + other + text.slice(at + 1))).toBeNull();
    }
  });

  it('is not issued if it would be too long to be read', () => {
    const given = { saleId: 1, notBeforeMs: 0, expiresMs: 0 };
    expect(() => tickets.issue({ ...given, customer: 'a'.repeat(128) })).toThrow(RangeError);
  });
});
