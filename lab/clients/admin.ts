import { setTimeout as sleep } from 'node:timers/promises';

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
  const { ADMIN_TOKEN } = process.env;
  const response = await fetch(`${service}/sales`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(ADMIN_TOKEN && { authorization: `Bearer ${ADMIN_TOKEN}` }),
    },
    body: JSON.stringify({ name: 'bench', stock, priceCents, maxPerOrder }),
    signal: AbortSignal.timeout(10_000),
  });
  const body = await response.text();
  if (response.status === 503 && body.includes('/problems/busy') && tries > 1) {
    await sleep(BUSY_PAUSE_MS);
    return createSale(service, stock, maxPerOrder, tries - 1);
  }
  if (!response.ok) throw new Error(`POST ${service}/sales answered ${response.status}: ${body}`);
  return (JSON.parse(body) as { readonly id: number }).id;
}
