/** The whole command against real stores: what a user types, what he sees, and what is left when he interrupts it. */
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { readHistory } from '../../bench/history.ts';
import type { Results } from '../../bench/report/results.ts';
import { create } from '../../src/locks/redlock.ts';
import { openIndependent } from '../support/redis-groups.ts';
import { openTestStores, type TestStores } from '../support/stores.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
const out = mkdtempSync(join(tmpdir(), 'stampede-bench-out-'));
let stores: TestStores;
beforeAll(async () => {
  stores = await openTestStores();
  await promisify(execFile)('npm', ['run', '--silent', 'build'], { cwd: root });
});
afterAll(async () => {
  await stores[Symbol.asyncDispose]();
  rmSync(out, { recursive: true, force: true });
});

function start(...args: string[]) {
  return startWith({}, ...args);
}

function startWith(env: Readonly<Record<string, string>>, ...args: string[]) {
  const child = spawn(process.execPath, ['--import', 'tsx', 'bench/main.ts', '--out', out, ...args], {
    cwd: root,
    env: { PATH: process.env.PATH, DATABASE_URL: inject('postgresUrl'), REDIS_URL: stores.redisUrl, ...env },
  });
  const run = { child, shown: '', ended: once(child, 'exit') as Promise<[number | null]> };
  const show = (chunk: Buffer): void => {
    run.shown += chunk.toString();
  };
  child.stdout.on('data', show);
  child.stderr.on('data', show);
  return run;
}

function results(): Results {
  return JSON.parse(readFileSync(join(out, 'latest', 'results.json'), 'utf8')) as Results;
}

/** Databases of trials that are still there; other files make theirs under other names. */
async function leftDatabases(): Promise<number> {
  const { rows } = await stores.sql.query(
    `SELECT 1 FROM pg_database WHERE datname ~ '^stampede_bench_[a-z0-9]+_([0-9]+|catalogue)$'`,
  );
  return rows.length;
}

const small = ['--smoke', '--attempts', '400', '--stock', '50', '--duration', '20'];

describe('npm run bench', () => {
  it('compares strategies, and sees the unsafe one oversell', async () => {
    const run = start(...small, '--strategies', 'unsafe,lua,for-update');
    const [code] = await run.ended;
    expect(run.shown).toContain('fail (expected)');
    expect(run.shown).not.toContain('WARNING');
    expect(code).toBe(0);

    const { trials, partial } = results();
    expect(partial).toBe(false);
    expect(trials.map(({ strategy }) => strategy)).toEqual(['unsafe', 'lua', 'for-update']);
    for (const trial of trials) {
      const { attempts, accepted, replayed, soldOut, notOpen, busy, unknown, unexpected } = trial;
      expect(attempts).toBe(400);
      expect(accepted + replayed + soldOut + notOpen + busy + unknown + unexpected).toBe(400);
      const history = await readHistory(join(out, 'latest', trial.history));
      expect(history).toHaveLength(400);
      expect(new Set(history.map(({ userId }) => userId)).size).toBe(360);
      if (trial.unsafe) {
        expect(trial.audit.verdict).toBe('fail');
        expect(trial.audit.oversold).toBeGreaterThan(0);
        // Nothing is cancelled of what was oversold.
        expect(trial).toMatchObject({ aftermath: { cancelled: 0, refundDue: 0 }, notes: [] });
        expect(trial.aftermath.paid).toBeGreaterThan(10);
      } else {
        expect(trial.audit).toMatchObject({ verdict: 'pass', findings: [] });
        expect(trial).toMatchObject({ accepted: 50, notes: [] });
        expect(trial.aftermath).toEqual({ paid: 16, cancelled: 16, refundDue: 8 });
        expect(trial.timeToSellOutMs).not.toBeNull();
      }
    }
    expect(await leftDatabases()).toBe(0);
  });

  it('stops in order when it is interrupted, and keeps what was finished', async () => {
    const run = start(...small, '--strategies', 'lua', '--rounds', '50');
    await expect.poll(() => run.shown, { timeout: 50_000 }).toContain('trial 3 of 50');
    run.child.kill('SIGINT');
    const [code] = await run.ended;
    expect(code).toBe(130);
    expect(run.shown).toMatch(/interrupted: \d+ of 50 trials were finished/);
    expect(results()).toMatchObject({ partial: true });
    expect(results().trials.length).toBeGreaterThanOrEqual(2);
    expect(await leftDatabases()).toBe(0);
  });

  it('refuses what it does not know before any trial', async () => {
    const before = readdirSync(out).length;
    const unknown = start('--strategies', 'lau,for-updte', '--locks', 'redis');
    expect(await unknown.ended).toEqual([2, null]);
    expect(unknown.shown).toContain('there is no strategy "lau"; did you mean "lua"?');
    expect(unknown.shown).toContain('there is no strategy "for-updte"; did you mean "for-update"?');
    const open = start('--load', 'wide', '--rounds', '0');
    expect(await open.ended).toEqual([2, null]);
    expect(open.shown.trim().split('\n')).toHaveLength(2);
    expect(readdirSync(out).length).toBe(before);
    expect(existsSync(join(out, 'latest', 'report.md'))).toBe(true);
  });

  it('refuses a lock that the service does not know, with what the service said', async () => {
    const run = start('--strategies', 'global-lock', '--locks', 'redis,rediss');
    expect(await run.ended).toEqual([2, null]);
    expect(run.shown).toContain('--locks: rediss cannot be used');
  });

  it('refuses a lock whose servers nobody named, before anything is started', async () => {
    const before = readdirSync(out).length;
    // Stores that are not there would be named first, if they were asked.
    const away = { DATABASE_URL: 'postgres://x:y@127.0.0.1:1/z', REDIS_URL: 'redis://127.0.0.1:1' };
    const run = startWith(away, '--strategies', 'global-lock', '--locks', 'redis,redlock,zookeeper');
    expect(await run.ended).toEqual([2, null]);
    const [redlock, zookeeper, ...more] = run.shown.trim().split('\n');
    expect(redlock).toContain('--locks redlock needs REDLOCK_URLS');
    expect(zookeeper).toContain('--locks zookeeper needs ZOOKEEPER_URL');
    expect(more).toEqual([]);
    expect(readdirSync(out).length).toBe(before);
  });

  it('gives a lock its servers, leaves them alone, and does not tell of them', async () => {
    const servers = await openIndependent(create, 3);
    const looks = servers.ports.map((port) => new Redis(port));
    const keys = () => Promise.all(looks.map(async (look) => (await look.keys('*')).sort()));
    try {
      for (const look of looks) await look.mset('stampede:{mine}:lock', 'x', 'somebody-else', 'x');
      const REDLOCK_URLS = servers.servers.redlockUrls!.join(',');
      const run = startWith({ REDLOCK_URLS }, ...small, '--strategies', 'global-lock', '--locks', 'redlock');
      const [code] = await run.ended;
      expect(code, run.shown).toBe(0);
      expect(results().trials).toMatchObject([
        { lock: 'redlock', accepted: 50, audit: { verdict: 'pass' }, notes: [] },
      ]);
      expect(await keys()).toEqual(Array(3).fill(['somebody-else', 'stampede:{mine}:lock']));
      const calls = await Promise.all(looks.map((look) => look.info('commandstats')));
      for (const one of calls) expect(one).not.toMatch(/cmdstat_(flushall|flushdb|unlink|scan)\b/);
      const told = readFileSync(join(out, 'latest', 'results.json'), 'utf8') + run.shown;
      for (const port of servers.ports) expect(told).not.toContain(`127.0.0.1:${port}`);
    } finally {
      for (const look of looks) look.disconnect();
      await servers.close();
    }
  });
});
