/**
 * The oldest Postgres that is supported: the core of a strategy of each kind, and `npm run check-server`, on the server of a package of
 * Debian or Ubuntu. POSTGRES=17 chooses another one that is installed.
 */
import { existsSync, readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { opened } from '../support/opened.ts';
import { OwnPostgres } from '../support/servers.ts';
import { runCommand } from '../support/service.ts';
import { openStoresOn } from '../support/stores.ts';
import { strategyContract } from './strategy-suite.ts';

const OLDEST = 15;
const PACKAGES = '/usr/lib/postgresql';
const programOf = (major: number) => `${PACKAGES}/${major}/bin/postgres`;
const installed = (existsSync(PACKAGES) ? readdirSync(PACKAGES) : [])
  .map(Number)
  .filter((major) => major >= OLDEST && existsSync(programOf(major)));
/** That of the distribution may be newer. */
const major = Number(process.env.POSTGRES ?? Math.min(...installed));
const isMissing = process.env.POSTGRES === undefined && installed.length === 0;

/** In Redis with a commit behind it, in a transaction, by a row for each unit, in batches. */
const kinds = ['lua', 'for-update', 'skip-locked', 'group-commit'];

describe.skipIf(isMissing)(
  isMissing ? `Postgres ${OLDEST} (missing: install the package postgresql-${OLDEST})` : `Postgres ${major}`,
  () => {
    const binaries = { server: { path: programOf(major), tree: `${PACKAGES}/${major}` }, major };
    const server = opened(() => OwnPostgres.open(binaries));
    it('is the server of the tests', async () => {
      await using stores = await openStoresOn(server);
      const { rows } = await stores.sql.query<{ server_version: string }>('SHOW server_version');
      expect(Number.parseInt(rows[0]!.server_version, 10)).toBe(major);
    });
    it('passes npm run check-server', async () => {
      await using stores = await openStoresOn(server);
      const { out } = await runCommand('check-server', {}, [stores.ownerUrl]);
      expect(out).toContain(` ok       Postgres ${major}.`);
      const problems = out
        .split('\n')
        .filter((line) => / problem /.test(line) && !line.startsWith('latency'));
      expect(problems).toEqual([]); // a busy machine commits slowly
    });
    for (const name of kinds)
      describe(name, () => strategyContract(name, { isWhole: false, open: () => openStoresOn(server) }));
  },
);
