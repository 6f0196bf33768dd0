/** One sale in a separate shop: customers come ─▶ strike ─▶ heal ─▶ audit. The load is the caller's. */
import { setTimeout as sleep } from 'node:timers/promises';
import { audit } from './audit/audit.ts';
import { readStores, settle } from './audit/reader.ts';
import { createSale } from './clients/admin.ts';
import { OUTAGE_MS, type StrategyFault } from './faults/strategy-fault.ts';
import type { HistoryRecord } from './history.ts';
import type { OpenShop } from './shop.ts';

/** The service repairs counters in Redis once their sale has been idle for 2 s; a busy machine is slower. */
const REPAIR_MS = 15_000;
const POLL_MS = 500;

export type Judgement = Readonly<Awaited<ReturnType<SaleTrial['judge']>>>;

export class SaleTrial {
  readonly saleId: number;
  readonly url: string;
  readonly #shop: OpenShop;
  readonly #isControl: boolean;

  private constructor(shop: OpenShop, saleId: number, isControl: boolean) {
    this.#shop = shop;
    this.url = shop.url;
    this.saleId = saleId;
    this.#isControl = isControl;
  }

  /** @param isControl the audit must fail, so it does not wait for repairs */
  static async open(shop: OpenShop, units: number, isControl: boolean): Promise<SaleTrial> {
    return new SaleTrial(shop, await createSale(shop.url, units), isControl);
  }

  /** Resolves when the fault has struck, lasted and ended. */
  async strike(fault: StrategyFault, signal: AbortSignal): Promise<void> {
    await fault.strike(this.#shop);
    await sleep(OUTAGE_MS, undefined, { signal });
    await fault.heal(this.#shop);
  }

  /** Audits the sale after the load. Waits for repairs in progress, which are not errors, and stops the service. */
  async judge(history: readonly HistoryRecord[]) {
    const stores = await this.#shop.stores();
    const endedMs = performance.now();
    const settled = await settle(stores, [this.saleId]);
    const settledMs = Math.round(performance.now() - endedMs);
    const read = async () => (await readStores(stores, [this.saleId], settled)).get(this.saleId)!;
    const untilMs = performance.now() + (this.#isControl ? 0 : REPAIR_MS);
    while (performance.now() < untilMs && audit(history, await read()).verdict === 'fail')
      await sleep(POLL_MS);
    await this.#shop.stop();
    const snapshot = await read();
    const { postgres } = snapshot;
    const all = 'unreadable' in postgres ? [] : postgres.orders;
    const orders = all.filter(({ saleId }) => saleId === this.saleId);
    return {
      report: audit(history, snapshot),
      /** Time from the end of the load until the stores settled. */
      settledMs,
      /** The sale's orders in Postgres. */
      orders,
    };
  }
}
