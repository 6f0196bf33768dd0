/** The folder .local is deleted while the service runs on it: the service reports it, and no other service ends its stores. */
import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeAll, expect, it } from 'vitest';
import { buy, call, createSale, post } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { installService, type Run } from '../support/service.ts';
import { bySize } from '../support/tier.ts';
import { isLinux, processesOn } from './support.ts';

const installed = opened(installService);
let folder: string;
const runs: Run[] = [];
const WORKERS = bySize({ core: ['2'], full: ['2'], nightly: ['1', '2'] });

beforeAll(() => {
  folder = path.join(installed.folder, '.local');
});
afterEach(async () => {
  for (const run of runs.splice(0)) {
    await run.stop();
  }
  await rm(folder, { recursive: true, force: true, maxRetries: 10 });
});

function start(env: Readonly<Record<string, string>>): Run {
  const run = installed.start(env);
  runs.push(run);
  return run;
}

/** Omits backends that Postgres has just forked: they have the server's command line for a moment. */
async function lastingProcesses(): Promise<number[]> {
  const before = processesOn(folder);
  await sleep(500);
  return processesOn(folder).filter((pid) => before.includes(pid));
}

it.runIf(isLinux).each(WORKERS)('a deleted folder, WORKERS=%s', async (WORKERS) => {
  const first = start({ WORKERS });
  const url = await first.url;
  await expect.poll(() => call(`${url}/readyz`)).toMatchObject({ body: { status: 'ok' } });
  // With a local Postgres, tasks need no receiver.
  const { id } = await createSale(url!, 1);
  const { orderId } = (await buy(url!, id, 'ann')).body;
  await post(`${url}/payments/notifications`, { notificationId: 'p-1', orderId, amountCents: 500 });
  await expect.poll(() => first.log.join()).toContain(`"ship:${orderId}","msg":"Task done`);
  // Another port is no remedy: the stores are in use as well.
  const again = start({ PORT: new URL(url!).port });
  expect(await again.url).toBeNull();
  expect(again.log.join('\n')).toMatch(
    new RegExp(`^The local stores in .* are in use by another service \\(pid ${first.process.pid}\\)`),
  );
  const servers = await lastingProcesses();
  await rm(folder, { recursive: true, force: true, maxRetries: 10 });

  const expectDegraded = async () => {
    const { status, body } = await call(`${url}/readyz`);
    // Postgres answers as long as it needs none of its files.
    expect([status, body.status]).toEqual(status === 200 ? [200, 'degraded'] : [503, 'unavailable']);
    expect(body.degraded).toContainEqual({
      what: 'local',
      detail: expect.stringContaining('was deleted'),
    });
  };
  await expectDegraded();

  const second = start({});
  expect(await second.url).toBeNull();
  expect(second.log.join('\n')).toContain(`belongs to another service (pid ${first.process.pid})`);

  await expectDegraded();
  expect(processesOn(folder)).toEqual(expect.arrayContaining(servers));

  first.process.kill('SIGTERM');
  await first.ended;
  expect(first.process.exitCode).toBe(0);
  expect(processesOn(folder)).toEqual([]);
});

it.runIf(isLinux)(
  'servers whose service died after the folder was deleted do not keep the next start out',
  async () => {
    const first = start({});
    await first.url;
    await rm(folder, { recursive: true, force: true, maxRetries: 10 });
    first.process.kill('SIGKILL');
    await first.ended;
    const next = start({});
    const url = await next.url;
    expect(await call(`${url}/readyz`)).toMatchObject({ status: 200, body: { status: 'ok' } });
    expect(existsSync(path.join(folder, 'stores.env'))).toBe(true);
  },
);
