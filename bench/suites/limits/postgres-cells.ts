/** Several Postgres for one service: the run's, and others of the same programs and settings. */

import { post } from '../../../lab/kit/http.ts';
import { MIGRATED, startPostgres } from '../../../lab/servers/postgres-folder.ts';
import type { PostgresServer } from '../../../src/local/postgres-server.ts';

/** @param cells how many with the run's; null: the service has that one, and Redis */
export async function openPostgresCells(cells: number | null, folder: string) {
  const servers: PostgresServer[] = [];
  const end = async () => void (await Promise.all(servers.map((server) => server.stop())));
  try {
    while (servers.length < (cells ?? 1) - 1)
      servers.push(await startPostgres({ folder: `${folder}-${servers.length + 1}` }));
  } catch (error) {
    await end();
    throw error;
  }
  const urls = servers.map((server) => server.url(MIGRATED));
  return {
    /** Of the others. */
    urls,
    pids: servers.map(({ pid }) => pid),
    env: cells === null ? {} : { CELL_DATABASE_URLS: urls.join(','), REDIS_URL: 'none' },
    [Symbol.asyncDispose]: end,
  };
}

/** The service deals sales; the first ones of a database are numbered from 1. */
export async function createSales(url: string, sales: number, stock: number): Promise<void> {
  const wait = { timeoutMs: 20_000 };
  for (let n = 1; n <= sales; n++) {
    const sale = { name: 'bench', stock, priceCents: 1_000 };
    const { status, text } = await post(`${url}/sales`, sale, {}, wait);
    if (status !== 201) throw new Error(`a sale was not created: ${status} ${text}`);
  }
}
