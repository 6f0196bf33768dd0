/**
 * What the role of the service may do: read and write rows. The role that migrates owns the tables, and grants this after each
 * migration.
 */
import { readFile } from 'node:fs/promises';
import type pg from 'pg';

const DML = ['SELECT', 'INSERT', 'UPDATE', 'DELETE'];

/** Tables on which the service has other privileges. */
const PRIVILEGES: Readonly<Record<string, readonly string[]>> = {
  audit_log: ['SELECT', 'INSERT'], // append-only
  audit_pending: ['SELECT', 'INSERT', 'DELETE'], // an event is moved to the log, and never changed
  _prisma_migrations: ['SELECT'], // the start reads which migrations are applied
};

const schema = new URL('../../../prisma/schema.prisma', import.meta.url);

/** Stampede's tables, and others in the same schema are none of its business. */
async function tableNames(): Promise<string[]> {
  const mapped = (await readFile(schema, 'utf8')).matchAll(/@@map\("(\w+)"\)/g);
  return [...Array.from(mapped, ([, name]) => name!), '_prisma_migrations'];
}

/** Parameters: the role (null: the current one), and for each wanted privilege its table and its name. */
const MISSING = `
  WITH target AS (SELECT coalesce($1::name, current_user) AS role),
  wanted AS (
    SELECT c.oid, c.relnamespace, privilege, position
    FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS given (name, privilege, position)
    JOIN pg_class c ON c.oid = to_regclass(quote_ident(name)))
  SELECT format('GRANT USAGE ON SCHEMA %I TO %I', nspname, role) AS statement FROM target, pg_namespace n
    WHERE n.oid IN (SELECT relnamespace FROM wanted) AND NOT has_schema_privilege(role, n.oid, 'USAGE')
  UNION ALL
  SELECT format('GRANT %s ON %s TO %I', string_agg(privilege, ', ' ORDER BY position), oid::regclass, role) FROM target, wanted
    WHERE NOT has_table_privilege(role, oid, privilege) GROUP BY oid, role
  UNION ALL
  SELECT format('GRANT USAGE ON SEQUENCE %s TO %I', s.oid::regclass, role) FROM target, pg_class s
    WHERE s.relkind = 'S' AND NOT has_sequence_privilege(role, s.oid, 'USAGE') AND EXISTS (
      SELECT FROM pg_depend d JOIN wanted ON d.refobjid = wanted.oid AND privilege = 'INSERT'
      WHERE d.classid = 'pg_class'::regclass AND d.objid = s.oid AND d.deptype IN ('a', 'i'))`;

/**
 * Compares what a role may do with what the service needs.
 * @param role null: the role of the connection
 * @returns the statements that give it what it lacks @throws what Postgres throws, such as for an unknown role
 */
export async function missingGrants(db: Pick<pg.Pool, 'query'>, role: string | null): Promise<string[]> {
  const wanted = (await tableNames()).flatMap((table) =>
    (PRIVILEGES[table] ?? DML).map((privilege) => ({ table, privilege })),
  );
  const { rows } = await db.query<{ statement: string }>(MISSING, [
    role,
    wanted.map(({ table }) => table),
    wanted.map(({ privilege }) => privilege),
  ]);
  return rows.map(({ statement }) => statement);
}
