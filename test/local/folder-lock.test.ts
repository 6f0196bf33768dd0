import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { type FolderLock, lockFolder } from '../../src/local/folder-lock.ts';
import { identify } from '../../src/local/processes.ts';
import { temporaryFolder } from './support.ts';

const inUseMessage = (pid: number) => `held for ${pid}`;

test('never has two holders, and every waiter acquires it', async () => {
  const claims = join(temporaryFolder(), 'lock');
  let holders = 0;
  let most = 0;
  const contend = async () => {
    const lock = await lockFolder({ claims, waitMs: 30_000, waitForAll: true, inUseMessage });
    most = Math.max(most, ++holders);
    await sleep(Math.random() * 10);
    holders--;
    lock.release();
  };
  await Promise.all(Array.from({ length: 12 }, contend));
  expect(most).toBe(1);
  expect(readdirSync(claims)).toEqual([]);
});

test('a held lock is an error at once; an ending one is waited for', async () => {
  const claims = join(temporaryFolder(), 'lock');
  const options = { claims, waitMs: 10_000, inUseMessage };
  const first: FolderLock = await lockFolder(options);
  await expect(lockFolder(options)).rejects.toMatchObject({
    code: 'folder-in-use',
    message: `held for ${process.pid}`,
  });
  first.markEnding();
  let second: FolderLock | null = null;
  const waiting = lockFolder(options).then((lock) => {
    second = lock;
  });
  await sleep(300);
  expect(second).toBeNull();
  first.release();
  await waiting;
  second!.release();
});

test('a claim of an earlier version excludes others as long as its process lives', async () => {
  const claims = join(temporaryFolder(), 'lock');
  mkdirSync(claims);
  const { pid, started } = identify(process.ppid)!;
  const written = JSON.stringify({ owner: { pid, started }, state: 'held' });
  for (const name of [`${pid}-${started}-0badcafe`, `${pid}-1-0badcafe`])
    writeFileSync(join(claims, name), written);
  await expect(lockFolder({ claims, waitMs: 0, inUseMessage })).rejects.toMatchObject({
    message: `held for ${pid}`,
  });
  expect(readdirSync(claims)).toEqual([`${pid}-${started}-0badcafe`]);
});
