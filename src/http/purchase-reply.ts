/** What an attempt is answered: the same bytes, whichever way the request came in. */
import type { ServerResponse } from 'node:http';
import { limits } from '../config/limits.ts';
import type { Outcome, PlacedOrder } from '../domain/outcome.ts';
import { type ProblemSlug, problemBody, problems } from './problems.ts';

/** An answer, ready to be written in one piece. */
export interface Reply {
  readonly status: number;
  /** Names and values in turn. */
  readonly headers: string[];
  /** ASCII, so that its length is its length in bytes. */
  readonly body: string;
}

/** Answers that are the same for everybody, made once for a sale; forgotten together when there are too many. */
const soldOut = new Map<number, Reply>();
const known = new Map<string, Reply>();
const KNOWN_MOST = 10_000;

function once<K>(replies: Map<K, Reply>, key: K, make: () => Reply): Reply {
  let reply = replies.get(key);
  if (reply === undefined) {
    if (replies.size >= KNOWN_MOST) replies.clear();
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
      return placed(outcome.durable ? 201 : 202, outcome.order, false);
    case 'replayed':
      return placed(200, outcome.order, true);
    case 'unknown':
      return refused(saleId, outcome);
    case 'sold-out':
      return once(soldOut, saleId, () => refused(saleId, outcome));
  }
  const reason = 'reason' in outcome ? outcome.reason : '';
  return once(known, `${outcome.kind} ${saleId} ${reason}`, () => refused(saleId, outcome));
}

/** Ids, names of states and numbers of a sale need no escaping. */
function placed(status: number, order: PlacedOrder, replayed: boolean): Reply {
  const { orderId, saleId, userId } = order;
  const body = `{"orderId":"${orderId}","saleId":${saleId},"userId":"${userId}","status":"${order.status}","replayed":${replayed}}`;
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

function refused(saleId: number, outcome: Exclude<Outcome, { order: PlacedOrder }>): Reply {
  switch (outcome.kind) {
    case 'sold-out':
      return problemReply('sold-out', `Every unit of sale ${saleId} is sold.`);
    case 'not-open': {
      const { reason } = outcome;
      const detail = reason === 'ended' ? `Sale ${saleId} has ended.` : `Sale ${saleId} has not started.`;
      return problemReply('sale-not-open', detail, { reason });
    }
    case 'unknown-sale':
      return problemReply('unknown-sale', `There is no sale ${saleId}.`);
    case 'busy': {
      const { reason } = outcome;
      return later(problemReply('busy', 'Nothing was changed. Try again after a moment.', { reason }));
    }
    case 'unknown': {
      const detail =
        'A store did not answer, so it is not known whether the order was placed. Repeat the request after the seconds in Retry-After: it gets the same order, or a new one.';
      const { reason, orderId } = outcome;
      const reply = problemReply('unknown-outcome', detail, { reason, orderId });
      return later(reply, limits.unknownRetryAfterS);
    }
  }
}

export function problemReply(slug: ProblemSlug, detail: string, members: object = {}): Reply {
  const body = JSON.stringify(problemBody(slug, detail, members));
  return {
    status: problems[slug].status,
    headers: [
      'Content-Type',
      'application/problem+json; charset=utf-8',
      'Content-Length',
      String(Buffer.byteLength(body)),
    ],
    body,
  };
}

/** An attempt may be repeated after a moment. */
function later(reply: Reply, afterS: number = limits.retryAfterS): Reply {
  return { ...reply, headers: [...reply.headers, 'Retry-After', String(afterS)] };
}
