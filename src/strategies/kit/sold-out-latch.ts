/**
 * The sales that this process knows to be sold out, so that it can refuse late customers without asking a store.
 *
 *   (unknown) ──an attempt was answered "sold out"──▶ arming: read the state, all customers with an order, the state again
 *       ▲                                                └──the same generation, and sold out──▶ latched
 *       │                                                                                          │ confirmed every latchCheckMs
 *       └── units have returned (notification), another generation, or no confirmation in time ◀──┘
 *
 * Whatever returns units of a sale, or adds a customer, changes its generation. While it stays the same and no unit is free, nothing can be
 * bought: the customers that were read are complete, and every other one gets "sold out". Attempts of those customers are passed on to the
 * store, which knows their orders. They are kept in a Bloom filter, two bytes each; a false positive costs one request.
 *
 * A confirmation counts from the moment it was requested, for at most latchTtlMs: a process that was suspended asks first.
 */
import { limits } from '../../config/limits.ts';
import type { SoldOut } from '../../domain/sale.ts';
import type { KnownSoldOut } from '../strategy.ts';
import { BloomFilter } from './bloom-filter.ts';

/** Where the sales are. */
export interface SoldOutSource {
  /**
   * For each sale its state; null: a unit is free, or the sale is not open.
   * @param isFinal false: only its generation counts, which a later call that is final compares
   * @throws what the store throws
   */
  states(saleIds: readonly number[], isFinal: boolean): Promise<readonly (SoldOut | null)[]>;
  /** The customers with an order, in pages. Those that were there throughout are among them. */
  customers(saleId: number): AsyncIterable<readonly string[]>;
  /** Calls back when units of a sale have returned. Absent: the next confirmation notices it. @returns a function that ends it */
  listen?(returned: (saleId: number) => void): () => void;
}

/** Arming reads all customers: after a failed one, the next waits for this multiple of its duration. */
const BACK_OFF = 10;

/** A latch without requests for this long is dropped, milliseconds. */
const IDLE_MS = 10_000;

interface Confirmed {
  readonly generation: string;
  /** On `performance.now()`'s clock. */
  untilMs: number;
}

interface Latched extends Confirmed {
  readonly customers: BloomFilter;
  usedMs: number;
}

type OnError = (doing: string, error: unknown, ids: object) => void;

export const soldOutLatch = (source: SoldOutSource, onError: OnError): KnownSoldOut =>
  new Latch(source, onError);

class Latch implements KnownSoldOut {
  readonly #source: SoldOutSource;
  readonly #onError: OnError;
  readonly #latched = new Map<number, Latched>();
  readonly #arming = new Map<number, { isForgotten: boolean }>();
  /** Not before these instants, on `performance.now()`'s clock. */
  readonly #notBefore = new Map<number, number>();
  #timer: NodeJS.Timeout | null = null;
  #stopListening: (() => void) | null = null;
  #confirming = false;
  #closed = false;

  constructor(source: SoldOutSource, onError: OnError) {
    this.#source = source;
    this.#onError = onError;
  }

  isSoldOut(saleId: number, userId: string): boolean {
    const known = this.#latched.get(saleId);
    if (known === undefined) return false;
    const nowMs = performance.now();
    known.usedMs = nowMs;
    return nowMs < known.untilMs && !known.customers.has(userId);
  }

  markSoldOut(saleId: number): void {
    if (
      this.#arming.has(saleId) ||
      this.#latched.has(saleId) ||
      this.#latched.size + this.#arming.size >= limits.maxLatches
    )
      return;
    const startedMs = performance.now();
    if (startedMs < (this.#notBefore.get(saleId) ?? 0)) return;
    const arming = { isForgotten: false };
    this.#arming.set(saleId, arming);
    this.#arm(saleId, arming)
      .catch((error) => this.#onError('arm-sold-out-latch', error, { saleId }))
      .finally(() => {
        this.#arming.delete(saleId);
        if (this.#notBefore.size > limits.maxLatches) this.#notBefore.clear();
        const nowMs = performance.now();
        this.#notBefore.set(saleId, nowMs + BACK_OFF * (nowMs - startedMs));
      });
  }

  forget(saleId: number): void {
    this.#latched.delete(saleId);
    const arming = this.#arming.get(saleId);
    if (arming !== undefined) arming.isForgotten = true;
  }

  get size(): number {
    return this.#latched.size;
  }

  close(): void {
    this.#closed = true;
    this.#latched.clear();
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#stopListening?.();
  }

  async #states(saleIds: readonly number[], isFinal = true): Promise<readonly (Confirmed | null)[]> {
    const askedMs = performance.now();
    const states = await this.#source.states(saleIds, isFinal);
    return states.map(
      (state) =>
        state && {
          generation: state.generation,
          untilMs: askedMs + Math.min(limits.latchTtlMs, state.sellsForMs),
        },
    );
  }

  async #arm(saleId: number, arming: { readonly isForgotten: boolean }): Promise<void> {
    const [before] = await this.#states([saleId], false);
    if (!before) return;
    const users: string[] = [];
    for await (const page of this.#source.customers(saleId)) users.push(...page);
    const [now] = await this.#states([saleId]);
    if (now?.generation !== before.generation || arming.isForgotten || this.#closed) return;
    const customers = new BloomFilter(users.length);
    for (const user of users) customers.add(user);
    this.#latched.set(saleId, { ...now, customers, usedMs: performance.now() });
    this.#timer ??= setInterval(() => void this.#confirm(), limits.latchCheckMs).unref();
    this.#stopListening ??= this.#source.listen?.((id) => this.forget(id)) ?? null;
  }

  async #confirm(): Promise<void> {
    if (this.#confirming) return;
    this.#confirming = true;
    const idleMs = performance.now() - IDLE_MS;
    for (const [saleId, { usedMs }] of this.#latched) if (usedMs < idleMs) this.#latched.delete(saleId);
    const asked = [...this.#latched];
    try {
      const found = asked.length === 0 ? [] : await this.#states(asked.map(([saleId]) => saleId));
      for (const [i, [saleId, known]] of asked.entries()) {
        if (this.#latched.get(saleId) !== known) continue;
        if (found[i]?.generation === known.generation) known.untilMs = found[i].untilMs;
        else this.#latched.delete(saleId);
      }
    } catch {
      // Their confirmations expire by themselves.
    } finally {
      this.#confirming = false;
    }
    if (this.#latched.size === 0 && this.#timer !== null) {
      clearInterval(this.#timer);
      this.#timer = null;
    }
  }
}
