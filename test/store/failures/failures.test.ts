/** What errors of the stores mean. Those of Postgres are real, as pg and Prisma pass them on. */
import pg from 'pg';
import { describe, expect, it } from 'vitest';
import { limits } from '../../../src/config/limits.ts';
import { storeFailure } from '../../../src/store/failures/any-store.ts';
import {
  afterWrite,
  classifyPostgresError,
  isRowError,
  UNREAD,
  wroteNothing,
} from '../../../src/store/failures/postgres.ts';
import { classifyRedisError } from '../../../src/store/failures/redis.ts';
import { openPostgres } from '../../../src/store/postgres/pool.ts';
import { opened } from '../../support/opened.ts';
import { openTestStores } from '../../support/stores.ts';

const stores = opened(openTestStores);
const postgres = opened(() => openPostgres(stores.databaseUrl, () => {}));

const errorOf = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => null,
    (error) => error,
  );

/** The same error through pg, Prisma and its transactions. */
async function raised(state: string): Promise<unknown[]> {
  const prisma = await postgres.prisma();
  const statement = `DO $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = '${state}'; END $$`;
  return Promise.all([
    errorOf(postgres.pool.query(statement)),
    errorOf(prisma.$executeRawUnsafe(statement)),
    errorOf(prisma.$transaction((tx) => tx.$executeRawUnsafe(statement))),
  ]);
}

describe('an answer of Postgres', () => {
  it.each([
    ['conflict', ['40001', '40P01', '26000', 'ST001']],
    ['unavailable', ['25006', '25P02', '28000', '28P01', '3D000', '40000', '53100', '53300', '53400']],
    [
      'unavailable',
      ['55000', '55006', '55P03', '57000', '57014', '57P01', '57P03', '58000', '58030', 'XX000'],
    ],
    ['unavailable', ['08000', '08001', '08003', '08006']], // raised by a trigger: the statement was rolled back
    ['rejected', ['23000', '23502', '23503', '23505', '23514', '23P01', 'P0001', 'ST002', 'ST004']],
    ['unknown', ['40003']],
  ])('is %s: %s', async (kind, states) => {
    for (const state of states) {
      for (const error of await raised(state)) {
        expect(classifyPostgresError(error).kind, `${state} ${String(error)}`).toBe(kind);
        expect(wroteNothing(error)).toBe(kind !== 'unknown');
      }
    }
  });

  it.each(['22012', '22P02', '42501', '42601', '42703', '42P01', '0A000', 'P0002', 'XX001'])(
    'is a defect: %s',
    async (state) => {
      for (const error of await raised(state)) {
        const defect = { kind: 'defect', reason: 'defect', error };
        expect(classifyPostgresError(error), String(error)).toMatchObject(defect);
        expect([storeFailure(error), wroteNothing(error)]).toEqual([defect, true]);
      }
    },
  );

  // These end the server, or need another language of it.
  it.each([
    ['unknown', 'PANIC', ['53100', '42501', 'XX000']], // a full disk of the WAL: the commit before it may be there
    ['unknown', 'FATAL', ['08006', '53200', '57P01', '58000']],
    ['not-sent', 'FATAL', ['28P01', '3D000', '53300', '57P03']],
    ['unavailable', 'FEHLER', ['55P03', '57014']],
    ['rejected', 'FEHLER', ['23505', 'P0001', 'ST002']],
    ['defect', 'FEHLER', ['22003', '42P01']],
    ['unknown', 'FEHLER', ['53100', '57P01', 'XX000']], // perhaps FATAL
  ])('is %s with the severity %s: %s', (kind, severity, codes) => {
    for (const code of codes) {
      const error = Object.assign(new pg.DatabaseError('', 0, 'error'), { severity, code });
      expect(classifyPostgresError(error).kind, code).toBe(kind);
      expect(wroteNothing(error), code).toBe(kind !== 'unknown');
      const ofRow = severity === 'FEHLER' && kind !== 'unknown' && !['55P03', '57014'].includes(code);
      expect(isRowError(error), code).toBe(ofRow);
    }
  });

  it('to a login sends nothing, in any language, and is of no row', () => {
    for (const [severity, code] of [
      ['FATAL', '53200'],
      ['FATAL', '57P01'],
      ['ВАЖНО', '28P01'],
    ]) {
      const error = Object.assign(new pg.DatabaseError('', 0, 'error'), {
        severity,
        code,
        syscall: 'connect',
      });
      expect(classifyPostgresError(error).kind, code).toBe('not-sent');
      expect(isRowError(error), code).toBe(false);
    }
    expect(isRowError(new pg.DatabaseError('not readable', 0, 'error'))).toBe(false);
  });

  it('that is late closes its connection: no other client sees its transaction', async () => {
    let backend = 0;
    const prisma = await postgres.prisma();
    const late = errorOf(
      prisma.$transaction(
        async (tx) => {
          const [row] = await tx.$queryRaw<{ pid: number }[]>`SELECT pg_backend_pid() AS pid`;
          backend = row!.pid;
          process.kill(backend, 'SIGSTOP');
          await tx.$queryRaw`SELECT 1`;
        },
        { timeout: limits.postgresStatementMs },
      ),
    );
    const failure = classifyPostgresError(await late);
    process.kill(backend, 'SIGCONT');
    expect(['unavailable', 'not-sent', 'unknown']).toContain(failure.kind);
    for (let i = 0; i < 8; i++)
      await postgres.pool.query(`INSERT INTO sales (name, price_cents, stock) VALUES ('late', 1, 1)`);
    const { rowCount } = await stores.sql.query(`SELECT FROM sales WHERE name = 'late'`);
    expect(rowCount).toBe(8);
  });

  it('that is lost after a write leaves the outcome unknown, even if nothing was read', async () => {
    const [busy] = await raised('57P03');
    expect(await afterWrite(Promise.reject(busy))).toBe(UNREAD);
    const [defect] = await raised('42P01');
    expect(await errorOf(afterWrite(Promise.reject(defect)))).toBe(defect);
    expect(await afterWrite(Promise.resolve(7))).toBe(7);
  });
});

describe('a connection to Postgres', () => {
  it('that cannot be opened sends nothing, also through Prisma', async () => {
    const nowhere = openPostgres('postgresql://nobody:x@127.0.0.1:1/none', () => {});
    const prisma = await nowhere.prisma();
    for (const asked of [nowhere.pool.query('SELECT 1'), prisma.$queryRaw`SELECT 1`, prisma.sale.count()])
      expect(classifyPostgresError(await errorOf(asked))).toEqual({
        kind: 'not-sent',
        reason: 'postgres-unreachable',
      });
    await nowhere.close();
    const closed = errorOf(nowhere.pool.query('SELECT 1'));
    expect(classifyPostgresError(await closed)).toEqual({ kind: 'not-sent', reason: 'shutting-down' });
  });

  it('that ends while a statement runs leaves the outcome unknown, also through Prisma', async () => {
    const other = openPostgres(stores.databaseUrl, () => {}, { connections: 4 });
    const patient = { statement_timeout: 60_000, query_timeout: 60_000, connectionTimeoutMillis: 60_000 };
    Object.assign(other.pool.options, patient); // none ends before all three sleep
    const bound = { maxWait: 60_000, timeout: 60_000 };
    const prisma = await other.prisma();
    const asked = [
      other.pool.query('SELECT pg_sleep(60)'),
      prisma.$queryRaw`SELECT pg_sleep(60)::text`,
      prisma.$transaction((tx) => tx.$queryRaw`SELECT pg_sleep(60)::text`, bound),
    ].map(errorOf);
    const asleep = `FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'SELECT pg_sleep%'`;
    const sleeping = () => stores.sql.query(`SELECT pid ${asleep} AND wait_event = 'PgSleep'`);
    await expect.poll(sleeping).toMatchObject({ rowCount: asked.length });
    await stores.sql.query(`SELECT pg_terminate_backend(pid) ${asleep}`);
    for (const error of await Promise.all(asked))
      expect(classifyPostgresError(error), String(error)).toMatchObject({ kind: 'unknown' });
    await other.close();
  });
});

it.each([
  ['unavailable', 'LOADING Redis is loading the dataset in memory'],
  ['unavailable', 'UNKILLABLE Sorry the script already executed write commands'],
  ['unavailable', 'NOAUTH Authentication required.'],
  ['unavailable', 'WRONGPASS invalid username-password pair or user is disabled.'],
  ['unavailable', "NOPERM User default has no permissions to run the 'evalsha' command"],
  ['unavailable', 'MISCONF Redis is configured to save RDB snapshots, but it is unable to persist to disk.'],
  ['unavailable', 'NOREPLICAS Not enough good replicas to write.'],
  [
    'unavailable',
    "ERR Error running script (call to f_1): @user_script:3: -OOM command not allowed when used memory > 'maxmemory'.",
  ],
  ['not-sent', "Stream isn't writeable and enableOfflineQueue options is false"],
  [
    'unknown',
    "ERR The user executing the script can't run this command or subcommand script: 31, on @user_script:1.",
  ],
  ['unknown', "ERR ACL failure in script: User a has no permissions to run the 'zadd' command script: 31"],
  ['unknown', 'Command timed out'],
  ['unknown', 'Connection is closed.'],
  ['unknown', 'Command aborted due to connection close'],
  ['unknown', 'read ECONNRESET'],
  ['defect', 'WRONGTYPE Operation against a key holding the wrong kind of value'],
  ['defect', 'ERR user_script:1: attempt to compare nil with number script: 1, on @user_script:1.'],
  ['defect', 'CROSSSLOT Keys in request do not hash to the same slot'],
])('a failure of Redis is %s: %s', (kind, message) => {
  expect(classifyRedisError(new Error(message)).kind).toBe(kind);
});
