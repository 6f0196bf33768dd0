/**
 * The database and the roles of a local Postgres. The superuser owns the tables and migrates; the service connects as another
 * role, which is given no more than the rights to read and write rows (store/postgres/privileges.ts).
 */
import pg from 'pg';
import { passwordFor } from './secret.ts';

const DATABASE = 'stampede';

/** The role of the service. */
export const SERVICE_ROLE = 'stampede_service';

const servicePassword = (url: URL) => passwordFor(SERVICE_ROLE, decodeURIComponent(url.password));

/** @param url of a local Postgres, with its superuser @returns the same for the service */
export function serviceUrlOf(url: string): string {
  const parsed = new URL(url);
  return Object.assign(parsed, { username: SERVICE_ROLE, password: servicePassword(parsed) }).href;
}

/** The URL of a database, `stampede` unless named. */
export const urlOf = (user: string, password: string, port: number, database = DATABASE): string =>
  `postgresql://${user}:${password}@127.0.0.1:${port}/${database}`;

/** Creates what is missing, unless the server is a standby, which has what its primary has. @throws what Postgres throws */
export async function ensureDatabase(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url, ssl: false });
  client.on('error', () => {}); // the exit of the process reports the server's death
  try {
    await client.connect();
    const { rows } = await client.query<{ standby: boolean; database: boolean; role: boolean }>(
      `SELECT pg_is_in_recovery() AS standby, EXISTS (SELECT FROM pg_database WHERE datname = $1) AS database,
         EXISTS (SELECT FROM pg_roles WHERE rolname = $2) AS role`,
      [DATABASE, SERVICE_ROLE],
    );
    const { standby, database, role } = rows[0]!;
    if (standby) return;
    if (!database) await client.query(`CREATE DATABASE ${DATABASE}`);
    const password = servicePassword(new URL(url));
    if (!role) await client.query(`CREATE ROLE ${SERVICE_ROLE} LOGIN PASSWORD '${password}'`);
  } finally {
    await client.end().catch(() => {});
  }
}
