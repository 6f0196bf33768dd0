/** A strategy of each kind behind PgBouncer in transaction mode, on fewer connections to Postgres than the service has to PgBouncer. */
import { describe } from 'vitest';
import { temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import { findPgBouncer, keepsStatements, openPgBouncer } from '../../lab/servers/pgbouncer.ts';
import { SERVICE_ROLE } from '../../src/local/postgres-roles.ts';
import { neededSettings } from '../../src/store/postgres/settings.ts';
import { openTestStores, type TestStores } from '../support/stores.ts';
import { strategyContract } from './strategy-suite.ts';

const program = findPgBouncer();
const isMissing = program === null || !keepsStatements(program);

/** The role has the settings that PgBouncer drops, in this database. */
async function openBehind(): Promise<TestStores> {
  const stores = await openTestStores();
  const database = new URL(stores.databaseUrl).pathname.slice(1);
  for (const [name, value] of Object.entries(neededSettings({ schema: null, events: [] })))
    await stores.sql.query(`ALTER ROLE ${SERVICE_ROLE} IN DATABASE ${database} SET ${name} = '${value}'`);
  const folder = await temporaryFolder('stampede-test-pgbouncer-');
  const pooler = await openPgBouncer(program!, stores.databaseUrl, folder, {
    pool_mode: 'transaction',
    default_pool_size: '8',
  });
  return {
    ...stores,
    databaseUrl: pooler.url,
    async [Symbol.asyncDispose]() {
      await pooler[Symbol.asyncDispose]();
      await stores[Symbol.asyncDispose]();
    },
  };
}

describe.skipIf(isMissing)(
  `behind PgBouncer${isMissing ? ' (missing: PgBouncer 1.21 or later)' : ''}`,
  () => {
    for (const name of ['lua', 'for-update', 'skip-locked', 'group-commit'])
      describe(name, () => strategyContract(name, { isWhole: false, open: openBehind }));
  },
);
