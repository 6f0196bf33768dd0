/**
 * The package `@stampede/client`: a shop's server, or its page, calls Stampede. It needs `fetch` and Web Crypto only.
 *
 * A method resolves to what the service answered, a refusal included, and repeats the request until there is an answer: see exchange.ts.
 * It throws a GaveUpError when the time is over without one, and a TypeError for what cannot be sent. Repeats are safe: a customer has
 * one order of a sale, a payment and an award have an id, and what an administrator creates has an Idempotency-Key.
 */
import { type CallOptions, type Ids, type Received, send } from './exchange.ts';
import type * as t from './types.ts';
import { signWebhook } from './webhooks.ts';

export { type CallOptions, GaveUpError, type Ids } from './exchange.ts';
export type * from './types.ts';
export {
  type ReceivedHeaders,
  type StampedeEvent,
  type StampedeTask,
  signWebhook,
  type Verified,
  verifyWebhook,
} from './webhooks.ts';

export interface StampedeOptions {
  /** Such as http://127.0.0.1:3000; with ADMIN_PORT, a second client has that port's for administration. */
  readonly url: string;
  /** A token of ADMIN_TOKEN or, with AUTH=jwt, of the customer. */
  readonly token?: string | undefined;
  /** One of PAYMENT_WEBHOOK_SECRETS: payments are signed with it. Without those, only an administrator reports them. */
  readonly paymentSecret?: string | undefined;
  /** How long a call repeats its request, milliseconds; by default 60,000. */
  readonly withinMs?: number | undefined;
  /** How long one request may take, milliseconds; by default 20,000, after which a network that drops packets brings no answer. */
  readonly tryMs?: number | undefined;
  readonly fetch?: typeof globalThis.fetch | undefined;
}

/** `idempotencyKey`: by default a random one for each call, which its repeats keep. Store it to continue a call after a crash. */
export interface AdminOptions extends CallOptions {
  readonly idempotencyKey?: string | undefined;
}

/** A route with the ids in its path, what a result has (see `Exchange`), and what is sent; `headers` are made for each try. */
type Call = [
  route: string,
  ids: Ids,
  has: readonly string[],
  sent: { readonly body?: object; headers?(body: string): Promise<Readonly<Record<string, string>>> },
  options?: CallOptions,
];

/** A refusal as the types have it. */
function refusalOf({ slug, body, mayHaveHappened }: Received): never {
  const { type: _, title: __, status: ___, ...members } = body;
  const isOverLimit = slug === 'invalid-request' && 'maxPerOrder' in body;
  return { ...members, kind: isOverLimit ? 'over-limit' : slug, mayHaveHappened } as never;
}

export class Stampede {
  readonly #options: StampedeOptions;
  /** Without a slash at its end. */
  readonly #url: string;

  /** @throws TypeError for a URL that is not of HTTP, or has a query or a fragment */
  constructor(options: StampedeOptions) {
    const { protocol, search, hash, href } = new URL(options.url);
    if (!/^https?:$/.test(protocol) || search + hash !== '')
      throw new TypeError(`no URL of HTTP: ${options.url}`);
    this.#options = options;
    this.#url = href.replace(/\/+$/, '');
  }

  /**
   * Buys. A repeat is safe, in this call and after it: a customer has one active order of a sale, so it returns that order or places one,
   * never two. A try that had no answer may still place an order, also after this call has given up; it expires if it is not paid.
   * @param options `token`: the ticket, with AUTH=jwt
   */
  async placeOrder(saleId: number, body: t.Purchase, options?: CallOptions): Promise<t.PurchaseAnswer> {
    const ids = { saleId, userId: body.userId };
    const received = await this.#send('POST /sales/{saleId}/orders', ids, ['orderId'], { body }, options);
    if (received.slug !== null) return refusalOf(received);
    const order = received.body as unknown as t.PlacedOrder;
    if (order.replayed) return { kind: 'replayed', order };
    return { kind: 'accepted', order, isDurable: received.status !== 202 };
  }

  getOrder(orderId: string, options?: CallOptions): Promise<t.OrderAnswer> {
    return this.#call('GET /orders/{orderId}', { orderId }, ['orderId'], {}, options);
  }

  /** The active order of a customer in a sale, or else the last one that was closed. */
  getOrderOfUser(saleId: number, userId: string, options?: CallOptions): Promise<t.UserOrderAnswer> {
    const route = 'GET /sales/{saleId}/orders?userId={userId}';
    return this.#call(route, { saleId, userId }, ['orderId'], {}, options);
  }

  /**
   * Cancels a pending order. If a try had no answer, and the order is cancelled by then, it is `done`; or `invalid-transition` with the
   * `orderStatus` cancelled, if the order cannot be read in time.
   */
  async cancelOrder(orderId: string, options: CallOptions = {}): Promise<t.CancelAnswer> {
    const route = 'POST /orders/{orderId}/cancel';
    const untilMs = performance.now() + (options.withinMs ?? this.#options.withinMs ?? 60_000);
    const answer = await this.#call<t.CancelAnswer>(route, { orderId }, ['orderId'], {}, options);
    const isCancelled = answer.kind === 'invalid-transition' && answer.orderStatus === 'cancelled';
    if (!isCancelled || !answer.mayHaveHappened) return answer;
    const left = { ...options, withinMs: untilMs - performance.now() };
    const read = await this.getOrder(orderId, left).catch(() => answer); // also when no time is left
    return read.kind === 'done' ? read : answer;
  }

  /** Cancels a pending order, or refunds a paid one, as an administrator. */
  refundOrder(orderId: string, body: t.Refund = {}, options?: AdminOptions): Promise<t.RefundAnswer> {
    return this.#administer('POST /orders/{orderId}/refund', { orderId }, ['orderId'], body, options);
  }

  /** Holds a pending order while a payment runs: it expires after `seconds` from now, and never earlier than before. */
  extendOrder(orderId: string, seconds: number, options?: AdminOptions): Promise<t.ExtendAnswer> {
    return this.#administer('POST /orders/{orderId}/extend', { orderId }, ['orderId'], { seconds }, options);
  }

  /** Passes an active order to another customer, once, as an administrator. */
  transferOrder(orderId: string, toUserId: string, options?: AdminOptions): Promise<t.TransferAnswer> {
    const route = 'POST /orders/{orderId}/transfer';
    return this.#administer(route, { orderId }, ['orderId'], { toUserId }, options);
  }

  /** Reports a payment, signed if the client has a `paymentSecret`. Safe to repeat, also by another call: `notificationId` identifies it. */
  async reportPayment(body: t.PaymentNotification, options?: CallOptions): Promise<t.PaymentAnswer> {
    const { notificationId, orderId } = body;
    const { paymentSecret } = this.#options;
    const id = crypto.randomUUID();
    const headers = async (text: string) =>
      paymentSecret === undefined ? {} : signWebhook(paymentSecret, id, text);
    const has = ['orderId', 'result'];
    const ids = { notificationId, orderId };
    const received = await this.#send('POST /payments/notifications', ids, has, { body, headers }, options);
    if (received.slug !== null) return refusalOf(received);
    const { result, reason } = received.body;
    if (result === 'unmatched') return { kind: result, reason } as t.PaymentAnswer;
    return { kind: 'done', value: received.body } as never;
  }

  listSales(query: t.SaleQuery = {}, options?: CallOptions): Promise<t.Answer<readonly t.Sale[]>> {
    const given = Object.entries(query).filter(([, value]) => value !== undefined);
    return this.#call(`GET /sales?${new URLSearchParams(given)}`, {}, ['length'], {}, options);
  }

  getSale(saleId: number, options?: CallOptions): Promise<t.Answer<t.Sale, 'unknown-sale'>> {
    return this.#call('GET /sales/{saleId}', { saleId }, ['id'], {}, options);
  }

  createSale(body: t.NewSale, options?: AdminOptions): Promise<t.NewSaleAnswer> {
    return this.#administer('POST /sales', {}, ['id'], body, options);
  }

  /** Changes a sale, or pauses it. It has no Idempotency-Key: a try without an answer may undo a later change while it is on its way. */
  changeSale(saleId: number, body: t.SaleChanges, options?: CallOptions): Promise<t.ChangeAnswer> {
    return this.#call('PATCH /sales/{saleId}', { saleId }, ['id'], { body }, options);
  }

  /** @param units to add; negative: to remove, of those that are not sold */
  restockSale(saleId: number, units: number, options?: AdminOptions): Promise<t.RestockAnswer> {
    return this.#administer('POST /sales/{saleId}/restock', { saleId }, ['id'], { units }, options);
  }

  /** Lets a group of customers buy before the sale starts for all; the same name again adds codes. */
  addGroup(saleId: number, body: t.NewGroup, options?: AdminOptions): Promise<t.GroupAnswer> {
    return this.#administer('POST /sales/{saleId}/groups', { saleId }, ['name'], body, options);
  }

  listGroups(saleId: number, options?: CallOptions): Promise<t.GroupsAnswer> {
    return this.#call('GET /sales/{saleId}/groups', { saleId }, ['length'], {}, options);
  }

  /** Cancels all unpaid orders of a sale and refunds the paid ones, in the background: `getSaleRefund` has the progress. Pause the sale first. */
  refundSale(saleId: number, body: t.Refund = {}, options?: AdminOptions): Promise<t.SaleRefundAnswer> {
    return this.#administer('POST /sales/{saleId}/refund', { saleId }, ['remaining'], body, options);
  }

  getSaleRefund(saleId: number, options?: CallOptions): Promise<t.SaleRefundProgress> {
    return this.#call('GET /sales/{saleId}/refund', { saleId }, ['remaining'], {}, options);
  }

  /** Waits for units of a sale that has too few. A repeat keeps the place. */
  joinWaitlist(saleId: number, body: Omit<t.Purchase, 'code'>, options?: CallOptions): Promise<t.JoinAnswer> {
    const ids = { saleId, userId: body.userId };
    return this.#call('POST /sales/{saleId}/waitlist', ids, ['joinedAt'], { body }, options);
  }

  /** A customer's place. */
  getWaitlistEntry(saleId: number, userId: string, options?: CallOptions): Promise<t.WaitlistAnswer> {
    return this.#call('GET /sales/{saleId}/waitlist/{userId}', { saleId, userId }, ['joinedAt'], {}, options);
  }

  leaveWaitlist(saleId: number, userId: string, options?: CallOptions): Promise<t.LeaveAnswer> {
    return this.#call('DELETE /sales/{saleId}/waitlist/{userId}', { saleId, userId }, [], {}, options);
  }

  /** Gets a ticket, with AUTH=jwt. @param options `token`: of the customer */
  createTicket(saleId: number, body: t.TicketRequest = {}, options?: CallOptions): Promise<t.TicketAnswer> {
    return this.#call('POST /sales/{saleId}/tickets', { saleId }, ['ticket'], { body }, options);
  }

  /** Awards points, once for each `sourceType` and `sourceId`. */
  awardPoints(userId: string, body: t.Award, options?: AdminOptions): Promise<t.AwardAnswer> {
    return this.#administer('POST /users/{userId}/points', { userId }, ['points'], body, options);
  }

  getPoints(userId: string, options?: CallOptions): Promise<t.PointsAnswer> {
    return this.#call('GET /users/{userId}/points', { userId }, ['balance'], {}, options);
  }

  #administer<A>(
    route: string,
    ids: Ids,
    has: string[],
    body: object,
    options: AdminOptions = {},
  ): Promise<A> {
    const { idempotencyKey = crypto.randomUUID() } = options;
    const headers = async () => ({ 'idempotency-key': idempotencyKey });
    return this.#call(route, { ...ids, idempotencyKey }, has, { body, headers }, options);
  }

  /** @typeParam A the answers of the route: test/client/types.test.ts compares them with /openapi.json */
  async #call<A>(...call: Call): Promise<A> {
    const received = await this.#send(...call);
    return received.slug === null ? ({ kind: 'done', value: received.body } as A) : refusalOf(received);
  }

  /** @throws TypeError for an id that would lead to another route */
  async #send(...[route, ids, has, sent, options = {}]: Call): Promise<Received> {
    const { withinMs = 60_000, tryMs = 20_000, fetch = globalThis.fetch } = this.#options;
    const { token = this.#options.token } = options;
    const path = route.replace(/\{(\w+)\}/g, (_, name: string) => {
      const id = String(ids[name]);
      if (/^\.{0,2}$/.test(id)) throw new TypeError(`${name} cannot be ${JSON.stringify(id)}`);
      return encodeURIComponent(id);
    });
    const [method = '', url = ''] = path.split(' ');
    const body = sent.body === undefined ? null : JSON.stringify(sent.body);
    const headers = async () => ({
      ...(body !== null && { 'content-type': 'application/json' }),
      ...(token !== undefined && { authorization: `Bearer ${token}` }),
      ...(await sent.headers?.(body!)),
    });
    return send({ method, url: this.#url + url, headers, body, has, ids, options, withinMs, tryMs, fetch });
  }
}
