/**
 * Finds which of several Postgres servers accepts writes.
 *
 *   unknown ──ask all at the same time: the first that is not read-only──▶ known
 *      ▲                                                                     │
 *      └── a connection failed, or its server became read-only ◀────────────┘
 *
 * Two servers that accept writes cannot be distinguished here: an old primary must be stopped or cut off before a standby is
 * promoted, as every failover manager for Postgres does.
 */
import pg from 'pg';
import { limits } from '../../config/limits.ts';
import type { Host } from '../../config/urls/hosts.ts';

export interface PrimaryFinder {
  /** @throws the errors of all servers when none accepts writes */
  locate(): Promise<Host>;
  /** Makes the next `locate` ask again. */
  forget(): void;
}

/** @param url of the database, with any host */
export function primaryFinder(url: string, hosts: readonly Host[]): PrimaryFinder {
  let known: Promise<Host> | null = null;

  async function ask(host: Host): Promise<Host> {
    const client = new pg.Client({
      connectionString: url,
      connectionTimeoutMillis: limits.postgresConnectMs,
      query_timeout: limits.postgresConnectMs,
      application_name: 'stampede-primary',
    });
    Object.assign(client, host);
    client.on('error', () => {}); // the statement in progress fails as well
    try {
      await client.connect();
      const { rows } = await client.query<{ transaction_read_only: string }>('SHOW transaction_read_only');
      if (rows[0]?.transaction_read_only === 'off') return host;
    } finally {
      void client.end().catch(() => {});
    }
    throw new Error(`Postgres at ${host.host}:${host.port} is read-only`);
  }

  async function find(): Promise<Host> {
    try {
      return await Promise.any(hosts.map(ask));
    } catch (error) {
      const { errors } = error as AggregateError;
      throw new Error(
        `no Postgres accepts writes: ${errors.map(({ message, code }) => message || code).join('; ')}`,
      );
    }
  }

  return {
    locate() {
      if (known !== null) return known;
      const finding = find();
      known = finding;
      finding.catch(() => {
        if (known === finding) known = null;
      });
      return finding;
    },
    forget() {
      known = null;
    },
  };
}
