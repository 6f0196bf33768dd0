/** WORKERS=2: processes that share a port keep every promise together, and one that dies is replaced. */
import { writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { connect } from 'node:net';
import path from 'node:path';
import { beforeAll, expect, it } from 'vitest';
import { temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import { freePort } from '../../src/local/server-process.ts';
import { buy, call, createSale, eventually, post, users } from '../support/client.ts';
import { openIssuer } from '../support/issuer.ts';
import { childrenOf } from '../support/nemesis.ts';
import { opened } from '../support/opened.ts';
import { spawnService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const service = opened(() => spawnService({ ...envOf(stores), WORKERS: '2' }));
let url: string;
beforeAll(() => {
  url = service.url;
});

/** The processes that serve. */
const serving = () => childrenOf(service.process.pid!);

it('sells exactly the stock from both, and adds up their metrics, whichever answers', async () => {
  expect(serving()).toHaveLength(2);
  const { id } = await createSale(url, 50);
  const answers = await Promise.all(users(400).map((user) => buy(url, id, user)));
  expect(answers.filter(({ status }) => status < 300)).toHaveLength(50);
  expect(answers.filter(({ problem }) => problem === 'sold-out')).toHaveLength(350);
  const bought = answers.filter(({ status }) => status === 201).length; // 200: a store answered too late before
  const { rows } = await stores.sql.query('SELECT sold FROM sales WHERE id = $1', [id]);
  expect(rows).toEqual([{ sold: 50 }]);
  const accepted = /^stampede_attempts_total\{strategy="lua",outcome="accepted"\} (\d+)/m;
  for (const { body } of await Promise.all(users(8).map(() => call(`${url}/metrics`))))
    expect(Number(accepted.exec(String(body.text))?.[1])).toBe(bought);
});

it('workers accept the tickets of each other, also without TICKET_SECRETS', async () => {
  await using issuer = await openIssuer();
  await using many = await spawnService({
    ...envOf(stores),
    WORKERS: '2',
    CUSTOMER_RATE: '0',
    ...issuer.env,
  });
  const { id } = await createSale(url, 1);
  const ask = (path: string, token: string) =>
    eventually(
      () => post(`${many.url}/sales/${id}/${path}`, {}, token),
      ({ status }) => status !== 503,
    );
  const { ticket } = (await ask('tickets', await issuer.token('ann'))).body;
  // The separate connections are spread over both workers.
  const answers = await Promise.all(Array.from({ length: 6 }, () => ask('orders', ticket as string)));
  expect(answers.filter(({ status }) => status < 300)).toHaveLength(6);
  expect(new Set(answers.map(({ body }) => body.orderId)).size).toBe(1);
});

it('secrets in files are read once: workers that replace others have the same', async () => {
  const folder = await temporaryFolder('stampede-test-files-');
  const given = { ...envOf(stores), ADMIN_TOKEN: '0123456789abcdef' };
  const files = Object.entries(given).map(([name, value]) => {
    if (!/URL|TOKEN/.test(name) || value === 'none') return [name, value];
    writeFileSync(path.join(folder, name), `${value}\n`);
    return [`${name}_FILE`, path.join(folder, name)];
  });
  const PORT = `${await freePort()}`; // a free one would be another when both workers are gone
  await using many = await spawnService({ ...Object.fromEntries(files), WORKERS: '2', PORT });
  await rm(folder, { recursive: true });
  for (const pid of childrenOf(many.process.pid!)) process.kill(pid, 'SIGKILL');
  await expect.poll(() => many.log.filter((line) => line.includes('starting another')).length).toBe(2);
  const headers = { authorization: `Bearer ${given.ADMIN_TOKEN}`, connection: 'close' };
  const statuses = () =>
    Promise.all(users(8).map(() => call(`${many.url}/tasks`, { headers }))).then(
      (all) => all.map(({ status }) => status),
      () => 'refused',
    );
  await expect.poll(statuses).toEqual(Array(8).fill(200));
});

it('metrics keep what a worker that died has counted, and there are none while one does not answer', async () => {
  const { id } = await createSale(url, 1);
  await Promise.all(users(100, 'counted').map((user) => buy(url, id, user)));
  const read = () => call(`${url}/metrics`, { headers: { connection: 'close' } });
  const attempts = async () => {
    const lines = String((await read()).body.text).matchAll(/^stampede_attempts_total\{.*\} (\d+)/gm);
    return [...lines].reduce((sum, [, count]) => sum + Number(count), 0);
  };
  const before = await attempts();
  expect(before).toBeGreaterThanOrEqual(100);
  const [first, other] = serving() as [number, number];
  process.kill(first, 'SIGKILL');
  await expect.poll(() => serving().filter((pid) => pid !== first)).toHaveLength(2);
  await expect.poll(attempts).toBe(before);

  process.kill(other, 'SIGSTOP');
  const answers = users(6).map(read);
  const { status, body } = await Promise.race(answers).finally(() => process.kill(other, 'SIGCONT'));
  expect([status, body.reason]).toEqual([503, 'worker-silent']);
  await Promise.all(answers);
  await expect.poll(attempts).toBe(before);
});

it('replaces a dead worker, and keeps selling', async () => {
  const { id } = await createSale(url, 100);
  const [first] = serving();
  const buying = users(100, 'one').map((user) => buy(url, id, user));
  // No connection stays open that was just passed to it.
  const headers = { connection: 'close' };
  const reading = users(60).map(() => call(`${url}/healthz`, { headers }));
  process.kill(first!, 'SIGKILL');
  await Promise.allSettled(reading);
  const answers = await Promise.all(buying);
  expect(answers.every(({ status }) => status === 201 || status === 200)).toBe(true);
  await expect.poll(() => serving().map((pid) => pid === first)).toEqual([false, false]);
  await expect.poll(() => service.log.some((line) => line.includes('starting another'))).toBe(true);
  expect((await buy(url, id, 'late')).problem).toBe('sold-out');
});

/** Sends an attempt to a worker, except the end of its body. @returns a function that sends the end and waits for the answer */
async function beginAttempt(at: string, saleId: unknown): Promise<() => Promise<string>> {
  const socket = connect(Number(new URL(at).port), '127.0.0.1');
  let answer = '';
  socket.on('data', (chunk) => {
    answer += chunk;
  });
  socket.on('error', () => {}); // the answer shows it
  const closed = new Promise((resolve) => socket.once('close', resolve));
  const head = `POST /sales/${saleId}/orders HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 14\r\n`;
  socket.write(`${head}Expect: 100-continue\r\n\r\n{"userId"`);
  await expect.poll(() => answer).toContain('100 Continue'); // a worker has the request
  return async () => {
    socket.write(':"a"}');
    await closed;
    return answer;
  };
}

/** Sends no request: cluster leaves a connection open that comes when the last worker has just closed the port. */
async function expectRefused(at: string): Promise<void> {
  const refusal = () =>
    new Promise((resolve) => {
      const probe = connect(Number(new URL(at).port), '127.0.0.1', () => resolve(null));
      probe.once('error', ({ code }: NodeJS.ErrnoException) => resolve(code));
      probe.once('connect', () => probe.destroy());
    });
  await expect.poll(refusal).toBe('ECONNREFUSED');
}

it('stops all gracefully, also when the terminal signals each of them', async () => {
  const pids = serving();
  const { id } = await createSale(url, 5);
  const finish = await beginAttempt(url, id);
  for (const pid of pids) process.kill(pid, 'SIGINT');
  service.process.kill('SIGINT');
  await expectRefused(url);
  expect(await finish()).toContain('HTTP/1.1 201');
  await service.ended;
  expect(service.process.exitCode).toBe(0);
  for (const pid of pids) expect(() => process.kill(pid, 0)).toThrow('ESRCH');
});
