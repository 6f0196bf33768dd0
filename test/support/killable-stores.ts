/** A Postgres and a Redis of a test file's own, which may be killed and started again on their ports. */
import { readdirSync, readFileSync } from 'node:fs';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { type PostgresServer, startPostgresServer } from '../../src/local/postgres-server.ts';
import { type RedisServer, startRedisServer } from '../../src/local/redis-server.ts';
import { migrate } from '../../src/store/postgres/migrate.ts';

export class KillableStores implements AsyncDisposable {
  readonly #folder: string;
  #postgres!: PostgresServer;
  #redis!: RedisServer;
  #databases = 0;

  private constructor(folder: string) {
    this.#folder = folder;
  }

  static async open(): Promise<KillableStores> {
    const folder = await mkdtemp(path.join(tmpdir(), 'stampede-test-killable-'));
    await chmod(folder, 0o755); // as root, Postgres may have to run as an account that must be able to enter
    const stores = new KillableStores(folder);
    await Promise.all([stores.startPostgres(), stores.startRedis()]);
    await stores.#administer('CREATE DATABASE killable');
    await migrate(stores.#postgres.url('killable'));
    return stores;
  }

  get postgresPort(): number {
    return this.#postgres.port;
  }

  /** Its first process, and its children: those that serve connections among them. */
  postgresPids(): number[] {
    const { pid } = this.#postgres;
    const children = readdirSync('/proc').filter((name) => {
      try {
        return (
          /^\d+$/.test(name) &&
          readFileSync(`/proc/${name}/stat`, 'utf8').split(') ')[1]!.split(' ')[1] === String(pid)
        );
      } catch {
        return false; // it has ended
      }
    });
    return [pid, ...children.map(Number)];
  }

  get redisPid(): number {
    return this.#redis.pid;
  }

  get redisPort(): number {
    return this.#redis.port;
  }

  get redisUrl(): string {
    return this.#redis.url;
  }

  /** Starts it, at the second time on the port that it had. What was committed is there: no disk was pulled. */
  async startPostgres(): Promise<void> {
    const port = this.#postgres === undefined ? {} : { port: this.#postgres.port };
    const folder = path.join(this.#folder, 'postgres');
    this.#postgres = await again(() => startPostgresServer({ folder, args: ['-c', 'fsync=off'], ...port }));
  }

  killPostgres(): Promise<void> {
    return this.#postgres.kill();
  }

  /** Starts it, at the second time on the port that it had, and empty. */
  async startRedis(): Promise<void> {
    const port = this.#redis === undefined ? {} : { port: this.#redis.port };
    const folder = path.join(this.#folder, 'redis');
    const args = ['--appendonly', 'no', '--save', ''];
    this.#redis = await again(() => startRedisServer({ folder, args, ...port }));
  }

  killRedis(): Promise<void> {
    return this.#redis.kill();
  }

  /** A new database with the tables. @returns its URL */
  async database(): Promise<string> {
    const name = `killable_${++this.#databases}`;
    await this.#administer(`CREATE DATABASE ${name} TEMPLATE killable`);
    return this.#postgres.url(name);
  }

  async #administer(statement: string): Promise<void> {
    const client = new pg.Client({ connectionString: this.#postgres.url('postgres') });
    await client.connect();
    await client.query(statement);
    await client.end();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.killPostgres(), this.killRedis()]);
    await rm(this.#folder, { recursive: true, force: true });
  }
}

/** Something else may have the port for a moment. */
async function again<T>(start: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await start();
    } catch (error) {
      if (tries === 20 || (error as { code?: string }).code !== 'port-taken') throw error;
      await sleep(250);
    }
  }
}
