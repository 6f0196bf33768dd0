/** Servers that a test may kill, freeze and start again on their ports. */
import { copyFile, mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import pg from 'pg';
import { removeFolder, temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import { type RedisCluster, startRedisCluster } from '../../lab/servers/cluster.ts';
import { MIGRATED, startPostgres } from '../../lab/servers/postgres-folder.ts';
import type { PostgresBinaries } from '../../src/local/postgres-binaries.ts';
import { SERVICE_ROLE } from '../../src/local/postgres-roles.ts';
import type { PostgresServer } from '../../src/local/postgres-server.ts';
import { type RedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import { migrate } from '../../src/store/postgres/migrate.ts';
import { childrenOf } from './nemesis.ts';

/** A cluster of three masters. */
export async function openCluster(): Promise<RedisCluster> {
  const folder = await temporaryFolder('stampede-test-cluster-');
  const cluster = await startRedisCluster(folder, 3, 0);
  return {
    ...cluster,
    async [Symbol.asyncDispose]() {
      await cluster[Symbol.asyncDispose]();
      await removeFolder(folder);
    },
  };
}

/** A redis-server without persistence except snapshots taken by hand. */
export class OwnRedis implements AsyncDisposable {
  #server: RedisServer;
  readonly #folder: string;

  private constructor(folder: string, server: RedisServer) {
    this.#folder = folder;
    this.#server = server;
  }

  static async open(args: readonly string[] = []): Promise<OwnRedis> {
    const folder = await mkdtemp(path.join(tmpdir(), 'stampede-test-redis-'));
    return new OwnRedis(folder, await startRedisServer({ folder, args: ['--appendonly', 'no', ...args] }));
  }

  get url(): string {
    return this.#server.url;
  }

  get port(): number {
    return this.#server.port;
  }

  get pid(): number {
    return this.#server.pid;
  }

  /** Keeps its present contents for `start('snapshot')`. */
  async snapshot(): Promise<void> {
    const redis = new Redis(this.url);
    await redis.save();
    redis.disconnect();
    await copyFile(path.join(this.#folder, 'dump.rdb'), path.join(this.#folder, 'kept.rdb'));
  }

  kill(): Promise<void> {
    return this.#server.kill();
  }

  /** Starts it again. */
  async start(as: 'snapshot' | 'empty' = 'empty'): Promise<void> {
    const file = as === 'snapshot' ? 'kept.rdb' : 'none.rdb';
    const args = ['--appendonly', 'no', '--dbfilename', file];
    const { port } = this.#server;
    this.#server = await untilPortIsFree(() => startRedisServer({ folder: this.#folder, args, port }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    await removeFolder(this.#folder);
  }
}

/** A Postgres with a migrated database that `database` clones. */
export class OwnPostgres implements AsyncDisposable {
  #server: PostgresServer;
  #databases = 0;
  #restarting: Promise<void> | null = null;
  readonly #folder: string;
  readonly #start: (port?: number) => Promise<PostgresServer>;

  private constructor(
    folder: string,
    start: (port?: number) => Promise<PostgresServer>,
    server: PostgresServer,
  ) {
    this.#folder = folder;
    this.#start = start;
    this.#server = server;
  }

  /** @param binaries by default those of the npm package */
  static async open(binaries?: PostgresBinaries): Promise<OwnPostgres> {
    const folder = await temporaryFolder('stampede-test-postgres-');
    const options = {
      folder: path.join(folder, 'data'),
      args: ['-c', 'fsync=off'],
      ...(binaries && { binaries }),
    };
    const start = (port?: number) => startPostgres({ ...options, ...(port !== undefined && { port }) });
    const postgres = new OwnPostgres(folder, start, await start());
    if (binaries !== undefined) {
      await postgres.#administer(`CREATE DATABASE ${MIGRATED}`);
      await migrate(postgres.#server.url(MIGRATED), SERVICE_ROLE);
    }
    return postgres;
  }

  get port(): number {
    return this.#server.port;
  }

  /** Its first process and that one's children, including the backends. */
  pids(): number[] {
    return [this.#server.pid, ...childrenOf(this.#server.pid)];
  }

  kill(): Promise<void> {
    return this.#server.kill();
  }

  /** Starts it again. What was committed is there: no disk lost its cache. */
  async start(): Promise<void> {
    const { port } = this.#server;
    this.#server = await untilPortIsFree(() => this.#start(port));
  }

  /** Kills it, and starts it again after a pause. A call while another one runs waits for that one. */
  restart(pauseMs: number): Promise<void> {
    const restart = async () => {
      await this.kill();
      await sleep(pauseMs);
      await this.start();
    };
    this.#restarting ??= restart().finally(() => {
      this.#restarting = null;
    });
    return this.#restarting;
  }

  /** A new database with the tables. @returns its URL, for the owner */
  async database(): Promise<string> {
    const name = `own_${++this.#databases}`;
    await this.#administer(`CREATE DATABASE ${name} TEMPLATE ${MIGRATED}`);
    return this.#server.url(name);
  }

  async #administer(statement: string): Promise<void> {
    const client = new pg.Client({ connectionString: this.#server.url('postgres') });
    await client.connect();
    await client.query(statement);
    await client.end();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
    await removeFolder(this.#folder);
  }
}

/** Retries: another process may hold the port for a moment. */
async function untilPortIsFree<T>(start: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await start();
    } catch (error) {
      if (tries === 20 || (error as { code?: string }).code !== 'port-taken') throw error;
      await sleep(250);
    }
  }
}
