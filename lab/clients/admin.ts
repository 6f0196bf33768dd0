import { setTimeout as sleep } from 'node:timers/promises';
import { adminHeaders, post, problemIn } from '../kit/http.ts';

/** Price of a unit in a sale of the bench. */
export const priceCents = 1_000;

/** A service that listens may not have reached its stores yet. A 503 means that nothing changed. */
const BUSY_TRIES = 20;
const BUSY_PAUSE_MS = 250;

/** Creates the sale of a trial. @param maxPerOrder the most units of an order @returns its id */
export async function createSale(
  service: string,
  stock: number,
  maxPerOrder = 1,
  tries = BUSY_TRIES,
): Promise<number> {
  const sale = { name: 'bench', stock, priceCents, maxPerOrder };
  const { status, text } = await post(`${service}/sales`, sale, adminHeaders());
  if (status === 503 && problemIn(text) === 'busy' && tries > 1) {
    await sleep(BUSY_PAUSE_MS);
    return createSale(service, stock, maxPerOrder, tries - 1);
  }
  if (status !== 201) throw new Error(`POST ${service}/sales answered ${status}: ${text}`);
  return (JSON.parse(text) as { readonly id: number }).id;
}
