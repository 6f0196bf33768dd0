/** The few administrative requests of a trial. */

const timeoutMs = 10_000;
/** What a unit costs in a sale of the bench. */
export const priceCents = 1_000;

/** Creates the sale of a trial and returns its id. */
export async function createSale(url: string, stock: number): Promise<number> {
  const sale = await request(url, '/sales', {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'bench', stock, priceCents }),
  });
  if (!isObject(sale) || typeof sale.id !== 'number') {
    throw new Error(`POST /sales answered without an id: ${JSON.stringify(sale)}`);
  }
  return sale.id;
}

/** A strategy as `GET /strategies` describes it, as far as the bench needs it. */
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

export async function readCatalogue(url: string): Promise<Catalogue> {
  const answer = await request(url, '/strategies', {});
  if (!isObject(answer) || !Array.isArray(answer.strategies)) {
    throw new Error('GET /strategies answered without a list of strategies');
  }
  return {
    strategies: answer.strategies.map(readEntry),
    lock: typeof answer.lock === 'string' ? answer.lock : null,
  };
}

function readEntry(strategy: unknown): CatalogueEntry {
  if (!isObject(strategy) || typeof strategy.name !== 'string' || !isObject(strategy.guarantees)) {
    throw new Error(
      `GET /strategies lists a strategy without name or guarantees: ${JSON.stringify(strategy)}`,
    );
  }
  return {
    name: strategy.name,
    summary: typeof strategy.summary === 'string' ? strategy.summary : '',
    usesLock: strategy.usesLock === true,
    inPostgres: strategy.store === 'postgres',
    neverOversells: strategy.guarantees.neverOversells === true,
  };
}

async function request(url: string, path: string, init: RequestInit): Promise<unknown> {
  const response = await fetch(`${url}${path}`, { ...init, signal: AbortSignal.timeout(timeoutMs) });
  const body = await response.text();
  if (!response.ok) throw new Error(`${init.method ?? 'GET'} ${path} answered ${response.status}: ${body}`);
  return JSON.parse(body) as unknown;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
