/** WORKERS=2: processes that share a port keep every promise together, and one that dies is replaced. */
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, expect, it } from 'vitest';
import { attempt, buy, call, createSale, users } from '../support/client.ts';
import { openIssuer } from '../support/issuer.ts';
import { childrenOf } from '../support/nemesis.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const service = opened(() => startService({ ...envOf(stores), WORKERS: '2' }));
let url: string;
beforeAll(() => {
  url = service.url;
});

/** The processes that serve. */
const serving = () => childrenOf(service.process.pid!);

async function metric(pattern: RegExp): Promise<number> {
  const { body } = await call(`${url}/metrics`);
  return Number(pattern.exec(String(body.text))?.[1] ?? Number.NaN);
}

it('sells exactly the stock from both', async () => {
  expect(serving()).toHaveLength(2);
  const { id } = await createSale(url, 50);
  const answers = await Promise.all(users(400).map((user) => buy(url, id, user)));
  expect(answers.filter(({ status }) => status < 300)).toHaveLength(50);
  expect(answers.filter(({ problem }) => problem === 'sold-out')).toHaveLength(350);
  const { rows } = await stores.sql.query('SELECT sold FROM sales WHERE id = $1', [id]);
  expect(rows).toEqual([{ sold: 50 }]);
});

it('workers accept the tickets of each other, also without TICKET_SECRETS', async () => {
  await using issuer = await openIssuer();
  await using many = await startService({
    ...envOf(stores),
    WORKERS: '2',
    CUSTOMER_RATE: '0',
    ...issuer.env,
  });
  const { id } = await createSale(url, 1);
  const ask = (path: string, token: string) =>
    call(`${many.url}/sales/${id}/${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}` },
    });
  const { ticket } = (await ask('tickets', await issuer.token('ann'))).body;
  // The separate connections are spread over both workers.
  const answers = await Promise.all(Array.from({ length: 6 }, () => ask('orders', ticket as string)));
  expect(answers.map(({ status }) => status).sort()).toEqual([200, 200, 200, 200, 200, 201]);
});

it('adds up the metrics of both, whichever answers', async () => {
  const accepted = /^stampede_attempts_total\{strategy="lua",outcome="accepted"\} (\d+)/m;
  const seconds = /^stampede_attempt_duration_seconds_count\{strategy="lua",outcome="accepted"\} (\d+)/m;
  const seen = await Promise.all(
    Array.from({ length: 8 }, () => Promise.all([metric(accepted), metric(seconds)])),
  );
  for (const counts of seen) expect(counts).toEqual([50, 50]);
  expect(
    await metric(
      /^stampede_attempt_duration_seconds_bucket\{strategy="lua",outcome="accepted",le="\+Inf"\} (\d+)/m,
    ),
  ).toBe(50);
});

it('replaces a dead worker, and keeps selling', async () => {
  const { id } = await createSale(url, 100);
  const [first] = serving();
  const buying = users(100, 'one').map((user) => buy(url, id, user));
  process.kill(first!, 'SIGKILL');
  const answers = await Promise.all(buying);
  expect(answers.every(({ status }) => status === 201 || status === 200)).toBe(true);
  await expect.poll(() => serving().map((pid) => pid === first)).toEqual([false, false]);
  expect(service.log.some((line) => line.includes('starting another'))).toBe(true);
  expect((await attempt(url, id, 'late')).problem).toBe('sold-out');
});

it('stops all gracefully, also when the terminal signals each of them', async () => {
  const pids = serving();
  const { id } = await createSale(url, 5);
  const head = `POST /sales/${id}/orders HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\nContent-Length: 14\r\n\r\n`;
  const socket = connect(Number(new URL(url).port), '127.0.0.1');
  let answer = '';
  socket.on('data', (chunk) => {
    answer += chunk;
  });
  socket.write(`${head}{"userId"`);
  await sleep(300);
  for (const pid of pids) process.kill(pid, 'SIGINT');
  service.process.kill('SIGINT');
  await sleep(300);
  socket.write(':"a"}');
  await expect.poll(() => answer).toMatch(/^HTTP\/1\.1 201/);
  socket.destroy();
  expect(await service.stop()).toBe(0);
  for (const pid of pids) expect(() => process.kill(pid, 0)).toThrow('ESRCH');
});

it('reports why it cannot start, and leaves no process', async () => {
  const failing = startService({ ...envOf(stores), WORKERS: '2', LOCK: 'redlock' });
  await expect(failing).rejects.toThrow('LOCK=redlock needs REDLOCK_URLS');
});
