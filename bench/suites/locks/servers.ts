/**
 * The servers of the locks. Redis and ZooKeeper are started for every trial; Postgres once for the run, with a database for
 * every trial.
 */
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { ensureRedisServer } from '../../../src/local/redis-server.ts';
import { type LocalStores, startLocalStores } from '../../../src/local/stores.ts';
import { migrate } from '../../../src/store/postgres/migrate.ts';
import type { ServerKind } from './cells.ts';
import type { ServerUrls } from './protocol.ts';
import { type RedisGroup, startRedisServers } from './redis-servers.ts';
import { startZookeeper, whyNoZookeeper } from './zookeeper-server.ts';

/** What one lock runs on for one trial. */
export interface Servers extends AsyncDisposable {
  readonly urls: ServerUrls;
  /** What the servers counted so far; null: they do not count it. */
  count(): Promise<{ readonly commands: number | null; readonly requests: number | null }>;
  empty(): Promise<void>;
}

export interface ServerRoom extends AsyncDisposable {
  /** Of the servers that were started. */
  readonly versions: Readonly<Record<string, string>>;
  /** @throws when the servers cannot be started; the message says what to do */
  open(kind: ServerKind): Promise<Servers>;
}

const groups: Partial<Record<ServerKind, Pick<RedisGroup, 'count' | 'replica'>>> = {
  redis: { count: 1, replica: false },
  'redis-replica': { count: 2, replica: true },
  'redis-five': { count: 5, replica: false },
};

export async function openServerRoom(say: (line: string) => void): Promise<ServerRoom> {
  const folder = await mkdtemp(join(tmpdir(), 'stampede-bench-locks-'));
  await chmod(folder, 0o755); // as root, Postgres runs as another account and must be able to enter
  return new LocalServerRoom(folder, say);
}

class LocalServerRoom implements ServerRoom {
  readonly versions: Record<string, string> = {};
  readonly #folder: string;
  readonly #say: (line: string) => void;
  #postgres: Promise<LocalStores> | null = null;
  #trial = 0;

  constructor(folder: string, say: (line: string) => void) {
    this.#folder = folder;
    this.#say = say;
  }

  async open(kind: ServerKind): Promise<Servers> {
    this.#trial++;
    const group = groups[kind];
    if (group !== undefined) return this.#openRedis(kind, group);
    return kind === 'zookeeper' ? this.#openZookeeper() : this.#openPostgres();
  }

  async #openRedis(kind: ServerKind, group: Pick<RedisGroup, 'count' | 'replica'>): Promise<Servers> {
    const folder = join(this.#folder, `redis-${this.#trial}`);
    const program = (await ensureRedisServer({ say: this.#say })).path;
    const servers = await startRedisServers({ folder, program, ...group });
    this.versions.redis = servers.version;
    const redisUrl = servers.urls[0]!;
    return {
      urls: kind === 'redis-five' ? { redlockUrls: servers.urls } : { redisUrl },
      count: async () => ({ commands: await servers.commands(), requests: null }),
      empty: () => servers.empty(),
      async [Symbol.asyncDispose]() {
        await servers.stop();
        await rm(folder, { recursive: true, force: true });
      },
    };
  }

  async #openZookeeper(): Promise<Servers> {
    const why = whyNoZookeeper();
    if (why !== null) throw new Error(why);
    const folder = join(this.#folder, `zookeeper-${this.#trial}`);
    const server = await startZookeeper(folder);
    this.versions.zookeeper = server.version;
    return {
      urls: { zookeeperUrl: server.url },
      count: async () => ({ commands: null, requests: await server.packets() }),
      empty: async () => {},
      async [Symbol.asyncDispose]() {
        await server.kill();
        await rm(folder, { recursive: true, force: true });
      },
    };
  }

  async #openPostgres(): Promise<Servers> {
    const folder = join(this.#folder, 'postgres');
    this.#postgres ??= startLocalStores({ folder, postgres: true, redis: false, say: this.#say });
    const { databaseUrl } = await this.#postgres;
    if (databaseUrl === null) throw new Error('a local Postgres was not started');
    const name = `stampede_locks_${this.#trial}`;
    const url = new URL(databaseUrl);
    url.pathname = `/${name}`;
    const rows = await query(databaseUrl, 'SHOW server_version');
    this.versions.postgres = String(rows[0]?.server_version);
    await query(databaseUrl, `CREATE DATABASE ${name}`);
    await migrate(url.href);
    return {
      urls: { databaseUrl: url.href },
      count: async () => ({ commands: null, requests: null }),
      empty: async () => {},
      async [Symbol.asyncDispose]() {
        await query(databaseUrl, `DROP DATABASE ${name} WITH (FORCE)`);
      },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const postgres = await this.#postgres?.catch(() => null);
    await postgres?.stop();
    await rm(this.#folder, { recursive: true, force: true });
  }
}

async function query(url: string, text: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: url });
  client.on('error', () => {}); // a connection that breaks fails the query in flight
  try {
    await client.connect();
    return (await client.query<Record<string, unknown>>(text)).rows;
  } finally {
    await client.end().catch(() => {});
  }
}
