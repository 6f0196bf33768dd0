/**
 * The body of a purchase. The form that JSON.stringify writes for one unit is read by a pattern, and every other one by the schema, as on
 * the Express route. A property test checks that both agree.
 */
import type * as z from 'zod';
import type { Ticket } from '../../access/ticket.ts';
import type { Opening } from '../../orders/purchase.ts';
import { ProblemError } from '../problems.ts';
import { parse } from '../requests.ts';
import { purchaseSchema, ticketPurchaseSchema, USER_ID } from '../schemas.ts';
import { problemReply, type Reply, replyWith } from './reply.ts';

export interface AskedPurchase {
  readonly userId: string;
  readonly quantity: number;
  readonly opening: Opening;
}

/** What the purchase in a body of the schema is. */
export const withOpening = ({ userId, quantity, code }: z.output<typeof purchaseSchema>): AskedPurchase => ({
  userId,
  quantity,
  opening: code === undefined ? null : { code },
});
export const openingBy = ({ isEarly }: Ticket): Opening => (isEarly === true ? 'ticket' : null);

const EMPTY = Buffer.alloc(0);
/** What JSON.stringify writes for a purchase of one unit. */
const PLAIN = new RegExp(`^\\{"userId":"(${USER_ID})"\\}$`);

/** The purchase in a body, or the answer to an invalid one. */
export function purchaseIn(body: Buffer | null): AskedPurchase | Reply {
  const userId = plainUserIdOf(body ?? EMPTY);
  if (userId !== null) return { userId, quantity: 1, opening: null };
  const asked = checked(body ?? EMPTY, purchaseSchema);
  return 'status' in asked ? asked : withOpening(asked);
}

/** The quantity in the body of a purchase with a ticket, which may be empty, or the answer to an invalid one. */
export function quantityIn(body: Buffer | null): number | Reply {
  if (body === null || body.length === 0 || plainUserIdOf(body) !== null) return 1;
  const asked = checked(body, ticketPurchaseSchema);
  return 'quantity' in asked ? asked.quantity : asked;
}

/** The user id in the usual form; null for any other form, valid or not. */
const plainUserIdOf = (body: Buffer): string | null => PLAIN.exec(body.toString('latin1'))?.[1] ?? null;

/** The text without a byte order mark, which Express also removes. */
function textOf(body: Buffer): string {
  const hasMark = body.length >= 3 && body[0] === 0xef && body[1] === 0xbb && body[2] === 0xbf;
  return body.toString('utf8', hasMark ? 3 : 0);
}

/** What the schema reads in a body, or the problem that it finds: the same as on the Express route. */
function checked<S extends typeof purchaseSchema | typeof ticketPurchaseSchema>(
  body: Buffer,
  schema: S,
): z.output<S> | Reply {
  let value: unknown;
  try {
    value = JSON.parse(textOf(body));
  } catch {
    return problemReply('invalid-request', 'The body is not valid JSON.');
  }
  try {
    return parse(schema, value, 'body') as z.output<S>;
  } catch (error) {
    if (error instanceof ProblemError) return replyWith(error.body);
    throw error;
  }
}
