/** What a unit costs in a sale of the bench. */
export const priceCents = 1_000;

/** Creates the sale of a trial. @returns its id */
export async function createSale(service: string, stock: number): Promise<number> {
  const { ADMIN_TOKEN } = process.env;
  const response = await fetch(`${service}/sales`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(ADMIN_TOKEN && { authorization: `Bearer ${ADMIN_TOKEN}` }),
    },
    body: JSON.stringify({ name: 'bench', stock, priceCents }),
    signal: AbortSignal.timeout(10_000),
  });
  const body = await response.text();
  if (!response.ok) throw new Error(`POST ${service}/sales answered ${response.status}: ${body}`);
  return (JSON.parse(body) as { readonly id: number }).id;
}
