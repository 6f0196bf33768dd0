/** The few administrative requests of a trial. */

const timeoutMs = 10_000;
/** What a unit costs in a sale of the bench. */
export const priceCents = 1_000;

/** Creates the sale of a trial and returns its id. */
export async function createSale(url: string, stock: number): Promise<number> {
  const headers = { 'content-type': 'application/json' };
  const body = JSON.stringify({ name: 'bench', stock, priceCents });
  const sale = await request<{ readonly id: number }>(`${url}/sales`, { method: 'POST', headers, body });
  return sale.id;
}

/** A strategy as the service describes it, as far as the bench needs it. */
export interface CatalogueEntry {
  readonly name: string;
  readonly summary: string;
  /** Whether it runs once for each lock of `--locks`. */
  readonly usesLock: boolean;
  /** Whether Postgres decides, so that pgbench can run its statements. */
  readonly inPostgres: boolean;
  /** False for the control that must be seen to oversell. */
  readonly neverOversells: boolean;
}

/** What the service says about itself, so that the bench needs to know no strategy. */
export interface Catalogue {
  readonly strategies: readonly CatalogueEntry[];
  /** The lock that it runs with. */
  readonly lock: string | null;
}

/** `GET /strategies`, as far as the bench reads it. */
interface Answer {
  readonly lock: string;
  readonly strategies: readonly (Pick<CatalogueEntry, 'name' | 'summary' | 'usesLock'> & {
    readonly store: string;
    readonly guarantees: Pick<CatalogueEntry, 'neverOversells'>;
  })[];
}

export async function readCatalogue(url: string): Promise<Catalogue> {
  const { lock, strategies } = await request<Answer>(`${url}/strategies`);
  return {
    lock,
    strategies: strategies.map(({ name, summary, usesLock, store, guarantees: { neverOversells } }) => {
      return { name, summary, usesLock, inPostgres: store === 'postgres', neverOversells };
    }),
  };
}

async function request<Body>(url: string, init: RequestInit = {}): Promise<Body> {
  const response = await fetch(url, { ...init, signal: AbortSignal.timeout(timeoutMs) });
  const body = await response.text();
  if (!response.ok) throw new Error(`${init.method ?? 'GET'} ${url} answered ${response.status}: ${body}`);
  return JSON.parse(body) as Body;
}
