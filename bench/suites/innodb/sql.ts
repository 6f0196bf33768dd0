/** One small interface over mysql2 and pg, so that both servers run the same statements. */
import type { Connection, ResultSetHeader } from 'mysql2/promise';
import pg from 'pg';
import type { Mariadb } from '../../../lab/servers/mariadb.ts';

export type Value = number | string;
export type Row = Readonly<Record<string, unknown>>;

/** A connection. */
export interface Sql {
  /** `?` stands for a value. @throws errors of the server */
  run(text: string, ...values: Value[]): Promise<{ readonly rows: readonly Row[]; readonly changed: number }>;
  end(): Promise<void>;
}

/** Why a statement was rejected; `other`: unexpected. */
export type Rejection = 'deadlock' | 'duplicate key' | 'other';

const codes: Readonly<Record<string, Rejection>> = {
  ER_LOCK_DEADLOCK: 'deadlock',
  '40P01': 'deadlock',
  ER_DUP_ENTRY: 'duplicate key',
  '23505': 'duplicate key',
};

export const rejectionOf = (error: unknown): Rejection =>
  codes[String((error as { readonly code?: unknown }).code)] ?? 'other';

export async function connectMariadb(server: Mariadb, database: string, isolation: string): Promise<Sql> {
  const connection: Connection = await server.connect(database);
  await connection.query(`SET SESSION TRANSACTION ISOLATION LEVEL ${isolation}`);
  return {
    async run(text, ...values) {
      const prepared = values.length > 0;
      const [result] = prepared ? await connection.execute(text, values) : await connection.query(text);
      if (Array.isArray(result)) return { rows: result as Row[], changed: 0 };
      return { rows: [], changed: (result as ResultSetHeader).affectedRows };
    },
    end: () => connection.end(),
  };
}

export async function connectPostgres(url: string, isolation: string): Promise<Sql> {
  const client = new pg.Client({ connectionString: url, application_name: 'stampede-bench' });
  client.on('error', () => {}); // the statement in flight fails as well
  await client.connect();
  await client.query(`SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL ${isolation}`);
  const names = new Map<string, string>();
  return {
    async run(text, ...values) {
      let n = 0;
      const numbered = text.replaceAll('?', () => `$${++n}`);
      const name = names.get(text) ?? `s${names.size}`;
      names.set(text, name);
      const query = values.length > 0 ? { name, text: numbered, values } : { text };
      const { rows, rowCount } = await client.query<Row>(query);
      return { rows, changed: rowCount ?? 0 };
    },
    end: () => client.end(),
  };
}
