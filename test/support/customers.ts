/**
 * Customers of a running sale, who buy, repeat, cancel, pay, pay twice, pay late, and let orders expire. Each writes
 * down what it was told, for promises.ts.
 *
 * When an answer does not come, a patient customer asks again until it has one, and others leave: what they had begun
 * is then nobody's but the service's.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { type Answer, attempt, call, post } from './client.ts';

/** What a customer was told. */
export interface Told {
  readonly userId: string;
  /** Orders of 201s, and of 200s. */
  readonly placed: string[];
  readonly replayed: string[];
  readonly cancelled: string[];
  readonly payments: { notificationId: string; orderId: string; status: unknown }[];
  /** Whether the customer never gave an order up: then every answer is about one order. */
  constant: boolean;
  soldOut: number;
  /** Answers that nobody promised. */
  readonly strange: string[];
}

export function newTold(userId: string): Told {
  const lists = { placed: [], replayed: [], cancelled: [], payments: [], strange: [] };
  return { userId, ...lists, constant: true, soldOut: 0 };
}

/** Where the customers are. */
export interface Market {
  readonly saleId: number;
  readonly sql: pg.Pool;
  readonly random: () => number;
  /** Where the service answers, once it does. */
  url(): Promise<string>;
}

/** Longer than any recovery, on a slow machine, too. */
const PATIENCE_MS = 240_000;

class Left extends Error {}

class Customer {
  readonly told: Told;
  readonly #market: Market;
  readonly #patient: boolean;

  constructor(market: Market, userId: string, patient: boolean) {
    this.#market = market;
    this.#patient = patient;
    this.told = newTold(userId);
  }

  pause(mostMs = 200): Promise<void> {
    return sleep(this.#market.random() * mostMs);
  }

  /** @returns the order; null: sold out */
  async buy(): Promise<string | null> {
    const { told } = this;
    const answer = await this.#insist((url) => attempt(url, this.#market.saleId, told.userId));
    const orderId = String(answer.body.orderId);
    if (answer.status === 201) told.placed.push(orderId);
    else if (answer.status === 200) told.replayed.push(orderId);
    else if (answer.problem === 'sold-out') told.soldOut++;
    else this.#strange('buy', answer);
    return answer.status < 300 ? orderId : null;
  }

  async cancel(orderId: string): Promise<void> {
    this.told.constant = false;
    const answer = await this.#insist((url) => call(`${url}/orders/${orderId}/cancel`, { method: 'POST' }));
    if (answer.status === 200) this.told.cancelled.push(orderId);
    else if (answer.problem !== 'invalid-transition') this.#strange('cancel', answer);
  }

  async pay(orderId: string, notificationId = `n-${orderId}`): Promise<void> {
    const body = { notificationId, orderId, amountCents: 500 };
    const answer = await this.#insist((url) => post(`${url}/payments/notifications`, body));
    if (answer.status !== 200) this.#strange('pay', answer);
    else this.told.payments.push({ notificationId, orderId, status: answer.body.status });
  }

  /** Lets the time to pay be over, and waits until the order is closed. */
  async expire(orderId: string): Promise<void> {
    this.told.constant = false;
    const { sql } = this.#market;
    await sql.query(`UPDATE orders SET expires_at = now() - interval '1 second' WHERE id = $1`, [orderId]);
    const untilMs = performance.now() + PATIENCE_MS;
    for (;;) {
      const { body } = await this.#insist((url) => call(`${url}/orders/${orderId}`));
      if (body.status !== 'pending') return;
      if (performance.now() > untilMs) throw new Error(`order ${orderId} does not expire`);
      await sleep(250);
    }
  }

  async #insist(ask: (url: string) => Promise<Answer>): Promise<Answer> {
    const untilMs = performance.now() + PATIENCE_MS;
    for (;;) {
      const url = await this.#market.url();
      const answer = await ask(url).catch(() => null);
      if (answer === null && !this.#patient) throw new Left();
      if (answer !== null && answer.status !== 503) return answer;
      if (performance.now() > untilMs)
        throw new Error(`${this.told.userId} waits for ever: ${JSON.stringify(answer?.body)}`);
      await this.pause();
    }
  }

  #strange(asked: string, { status, body }: Answer): void {
    this.told.strange.push(`${this.told.userId}, ${asked}: ${status} ${JSON.stringify(body)}`);
  }
}

/** What a customer who has an order does with it. */
const ROLES: readonly ((customer: Customer, orderId: string) => Promise<void>)[] = [
  async function keeps(customer) {
    await customer.buy();
  },
  async function cancels(customer, orderId) {
    await customer.cancel(orderId);
    await customer.cancel(orderId);
  },
  async function pays(customer, orderId) {
    await Promise.all([customer.pay(orderId), customer.pay(orderId)]);
    await customer.pay(orderId, `again-${orderId}`);
  },
  async function forgets(customer, orderId) {
    await customer.expire(orderId);
  },
  async function paysLate(customer, orderId) {
    await customer.expire(orderId);
    await Promise.all([customer.pay(orderId), customer.pay(orderId)]);
  },
  async function returns(customer, orderId) {
    await customer.cancel(orderId);
    await customer.buy();
  },
  async function wavers(customer, orderId) {
    await Promise.all([customer.cancel(orderId), customer.pay(orderId)]);
  },
];

/** How many customers come. */
export const CUSTOMERS = 2 * ROLES.length;

/**
 * Lets them all come, within a second.
 * @returns what they were told so far, and the end of the last one's business
 */
export function letThemCome(market: Market): {
  readonly told: readonly Told[];
  readonly gone: Promise<void>;
} {
  const customers = Array.from(
    { length: CUSTOMERS },
    (_, i) => new Customer(market, `${market.saleId}-${i}`, market.random() < 0.6),
  );
  const business = customers.map(async (customer, i) => {
    try {
      await customer.pause(800);
      const [orderId] = await Promise.all([customer.buy(), i < ROLES.length ? customer.buy() : null]);
      await customer.pause();
      if (orderId !== null) await ROLES[i % ROLES.length]!(customer, orderId);
    } catch (error) {
      if (!(error instanceof Left)) throw error;
    }
  });
  return { told: customers.map(({ told }) => told), gone: Promise.all(business).then(() => {}) };
}
