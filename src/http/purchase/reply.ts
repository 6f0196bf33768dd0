/** The responses to purchase attempts, shared by both purchase routes. */
import type { ServerResponse } from 'node:http';
import type { Outcome, PlacedOrder } from '../../domain/outcome.ts';
import {
  busy,
  type MembersArgument,
  type ProblemBody,
  type ProblemSlug,
  problemBody,
  retryAfterS,
} from '../problems.ts';

/** A response that is written at once. */
export interface Reply {
  readonly status: number;
  /** Names and values, alternating. */
  readonly headers: string[];
  /** ASCII, so that its length is also its length in bytes. */
  readonly body: string;
}

/** Caches of responses that depend only on the sale and the reason; cleared when full. */
const soldOut = new Map<number, Reply>();
const rejections = new Map<string, Reply>();
const MAX_CACHED = 10_000;

function cached<K>(replies: Map<K, Reply>, key: K, make: () => Reply): Reply {
  let reply = replies.get(key);
  if (reply === undefined) {
    if (replies.size >= MAX_CACHED) replies.clear();
    reply = make();
    replies.set(key, reply);
  }
  return reply;
}

export function send(res: ServerResponse, { status, headers, body }: Reply): void {
  res.writeHead(status, headers).end(body);
}

export function replyOf(saleId: number, outcome: Outcome): Reply {
  switch (outcome.kind) {
    case 'accepted':
      return orderReply(outcome.durable ? 201 : 202, outcome.order, false);
    case 'replayed':
      return orderReply(200, outcome.order, true);
    case 'unknown':
    case 'not-enough-units':
    case 'over-limit':
    case 'customer-limit':
      return rejected(saleId, outcome);
    case 'sold-out':
      return cached(soldOut, saleId, () => rejected(saleId, outcome));
  }
  const reason = 'reason' in outcome ? outcome.reason : '';
  return cached(rejections, `${outcome.kind} ${saleId} ${reason}`, () => rejected(saleId, outcome));
}

/** Builds the JSON by hand: ids, states and numbers need no escaping. */
function orderReply(status: number, order: PlacedOrder, replayed: boolean): Reply {
  const { orderId, saleId, userId, quantity } = order;
  const body = `{"orderId":"${orderId}","saleId":${saleId},"userId":"${userId}","status":"${order.status}","quantity":${quantity},"replayed":${replayed}}`;
  const headers = [
    'Content-Type',
    'application/json; charset=utf-8',
    'Content-Length',
    String(body.length),
    'Location',
    `/orders/${orderId}`,
  ];
  return { status, headers, body };
}

function rejected(saleId: number, outcome: Exclude<Outcome, { order: PlacedOrder }>): Reply {
  switch (outcome.kind) {
    case 'sold-out':
      return problemReply('sold-out', `Every unit of sale ${saleId} is sold.`);
    case 'not-enough-units': {
      const { remaining } = outcome;
      const detail = `Sale ${saleId} has ${remaining} left. Ask for fewer; nothing was reserved.`;
      return problemReply('not-enough-units', detail, { remaining });
    }
    case 'over-limit': {
      const { maxPerOrder } = outcome;
      const errors = [{ path: 'body.quantity', message: `must be at most ${maxPerOrder}` }];
      const detail = `An order of sale ${saleId} may have at most ${maxPerOrder} units.`;
      return problemReply('invalid-request', detail, { errors, maxPerOrder });
    }
    case 'customer-limit': {
      const { limit, left } = outcome;
      const detail = `A customer may have ${limit} units of the sales in the group of sale ${saleId}; this one may have ${left} more. Nothing was reserved.`;
      return problemReply('customer-limit', detail, { limit, left });
    }
    case 'not-open': {
      const { reason } = outcome;
      return problemReply('sale-not-open', `Sale ${saleId} ${NOT_OPEN[reason]}.`, { reason });
    }
    case 'invalid-code':
      return problemReply('invalid-code', invalidCode(saleId, outcome.reason), { reason: outcome.reason });
    case 'unknown-sale':
      return problemReply('unknown-sale', `Sale ${saleId} does not exist.`);
    case 'busy':
      return replyWith(busy(outcome.reason).body);
    case 'unknown': {
      const detail =
        'A store did not answer, so the order may or may not have been placed. Repeat the request after the delay in Retry-After: it returns that order or places a new one.';
      const { reason, orderId } = outcome;
      return problemReply('unknown-outcome', detail, { reason, orderId });
    }
  }
}

/** For people. */
export const invalidCode = (saleId: number, reason: 'unknown' | 'used-up'): string =>
  `${reason === 'unknown' ? `No group of sale ${saleId} has this code` : 'Other customers have all uses of this code'}. Nothing was changed.`;

const NOT_OPEN = { 'not-started': 'has not started', ended: 'has ended', paused: 'is paused' } as const;

export const problemReply = <S extends ProblemSlug>(
  slug: S,
  detail: string,
  ...members: MembersArgument<S>
): Reply => replyWith(problemBody(slug, detail, ...members));

/** @param afterS for `Retry-After`, seconds; undefined: the problem has none */
export function replyWith(problem: ProblemBody, afterS = retryAfterS[problem.type]): Reply {
  const body = JSON.stringify(problem);
  return {
    status: problem.status,
    headers: [
      'Content-Type',
      'application/problem+json; charset=utf-8',
      'Content-Length',
      String(Buffer.byteLength(body)),
      ...(afterS === undefined ? [] : ['Retry-After', String(afterS)]),
    ],
    body,
  };
}
