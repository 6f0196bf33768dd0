/**
 * The body of a purchase. The form that JSON.stringify writes is read by hand, and every other one by JSON.parse; the schema describes the
 * mistakes of an invalid one, as on the Express route. A property test checks that both agree.
 */
import type { z } from 'zod';
import { limits } from '../../config/limits.ts';
import { ProblemError } from '../problems.ts';
import { parse } from '../requests.ts';
import { purchaseSchema, ticketPurchaseSchema } from '../schemas.ts';
import { problemReply, type Reply, replyWith } from './reply.ts';

export interface AskedPurchase {
  readonly userId: string;
  readonly quantity: number;
}

/** Valid characters of a user id, by code. */
const ALLOWED = new Uint8Array(256);
for (const character of 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-') {
  ALLOWED[character.charCodeAt(0)] = 1;
}

/** The purchase in a body, or the answer to an invalid one. */
export function purchaseIn(body: Buffer | null): AskedPurchase | Reply {
  return purchaseOf(body ?? EMPTY) ?? checked(body ?? EMPTY, purchaseSchema);
}

/** The quantity in the body of a purchase with a ticket, which may be empty, or the answer to an invalid one. */
export function quantityIn(body: Buffer | null): number | Reply {
  if (body === null || body.length === 0 || plainUserIdOf(body) !== null) return 1;
  const asked = checked(body, ticketPurchaseSchema);
  return 'quantity' in asked ? asked.quantity : asked;
}

const EMPTY = Buffer.alloc(0);
const BEFORE = Buffer.from('{"userId":"');
const AFTER = Buffer.from('"}');

/** The purchase of a body that matches purchaseSchema; null for any other body. */
export function purchaseOf(body: Buffer): AskedPurchase | null {
  const userId = plainUserIdOf(body);
  return userId === null ? parsedPurchaseOf(body) : { userId, quantity: 1 };
}

/** The user id in the body that JSON.stringify writes for one unit; null for any other form, valid or not. */
function plainUserIdOf(body: Buffer): string | null {
  const end = body.length - AFTER.length;
  const length = end - BEFORE.length;
  if (length < 1 || length > limits.userIdLength) return null;
  for (let i = 0; i < BEFORE.length; i++) if (body[i] !== BEFORE[i]) return null;
  for (let i = BEFORE.length; i < end; i++) if (ALLOWED[body[i]!] !== 1) return null;
  return body[end] === AFTER[0] && body[end + 1] === AFTER[1]
    ? body.toString('latin1', BEFORE.length, end)
    : null;
}

function parsedPurchaseOf(body: Buffer): AskedPurchase | null {
  let value: unknown;
  try {
    value = JSON.parse(textOf(body));
  } catch {
    return null;
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return null;
  const { userId, quantity = 1, ...others } = value as { userId?: unknown; quantity?: unknown };
  if (typeof userId !== 'string' || !isUserId(userId) || Object.keys(others).length > 0) return null;
  if (typeof quantity !== 'number' || !Number.isInteger(quantity)) return null;
  return quantity >= 1 && quantity <= limits.maxPerOrder ? { userId, quantity } : null;
}

function isUserId(text: string): boolean {
  if (text.length === 0 || text.length > limits.userIdLength) return false;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (ALLOWED[code] !== 1) return false;
  }
  return true;
}

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
