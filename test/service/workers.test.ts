/** WORKERS=2: processes that share a port keep every promise together, and one that dies is replaced. */
import { connect } from 'node:net';
import { beforeAll, expect, it } from 'vitest';
import { freePort } from '../../src/local/server-process.ts';
import { buy, call, createSale, eventually, users } from '../support/client.ts';
import { openIssuer } from '../support/issuer.ts';
import { childrenOf } from '../support/nemesis.ts';
import { opened } from '../support/opened.ts';
import { launch, type Run, spawnService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
const service = opened(() => spawnService({ ...envOf(stores), WORKERS: '2' }));
let url: string;
/** Attempts of the first test that were answered 201. */
let bought = 0;
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
  bought = answers.filter(({ status }) => status === 201).length; // 200: a store answered too late before
  const { rows } = await stores.sql.query('SELECT sold FROM sales WHERE id = $1', [id]);
  expect(rows).toEqual([{ sold: 50 }]);
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
      () =>
        call(`${many.url}/sales/${id}/${path}`, {
          method: 'POST',
          headers: { authorization: `Bearer ${token}` },
        }),
      ({ status }) => status !== 503,
    );
  const { ticket } = (await ask('tickets', await issuer.token('ann'))).body;
  // The separate connections are spread over both workers.
  const answers = await Promise.all(Array.from({ length: 6 }, () => ask('orders', ticket as string)));
  expect(answers.filter(({ status }) => status < 300)).toHaveLength(6);
  expect(new Set(answers.map(({ body }) => body.orderId)).size).toBe(1);
});

it('adds up the metrics of both, whichever answers', async () => {
  const accepted = /^stampede_attempts_total\{strategy="lua",outcome="accepted"\} (\d+)/m;
  const seconds = /^stampede_attempt_duration_seconds_count\{strategy="lua",outcome="accepted"\} (\d+)/m;
  const seen = await Promise.all(
    Array.from({ length: 8 }, () => Promise.all([metric(accepted), metric(seconds)])),
  );
  for (const counts of seen) expect(counts).toEqual([bought, bought]);
  expect(
    await metric(
      /^stampede_attempt_duration_seconds_bucket\{strategy="lua",outcome="accepted",le="\+Inf"\} (\d+)/m,
    ),
  ).toBe(bought);
});

it('replaces a dead worker, and keeps selling', async () => {
  const { id } = await createSale(url, 100);
  const [first] = serving();
  const buying = users(100, 'one').map((user) => buy(url, id, user));
  process.kill(first!, 'SIGKILL');
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

/** Module code that holds a worker: before it loads any other module, or while it listens but has not said so until SIGWINCH. */
const HOLDS = {
  loading: "console.error('held', process.pid); await new Promise(() => {});",
  opening: `const { listen } = net.Server.prototype;
    net.Server.prototype.listen = function (...given) {
      process.once('SIGWINCH', given.pop());
      return listen.call(this, ...given, () => console.error('held', process.pid));
    };`,
};

/** The environment in which a worker is held, and logs so. */
function holding(worker: number, how: keyof typeof HOLDS): { NODE_OPTIONS: string } {
  const code = `import cluster from 'node:cluster'; import net from 'node:net';
    if (cluster.worker?.id === ${worker}) { ${HOLDS[how]} }`;
  return { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(code)}` };
}

async function untilHeld(run: Pick<Run, 'log'>): Promise<number> {
  const pid = () => Number(/held (\d+)/.exec(run.log.join(''))?.[1] ?? 0);
  await expect.poll(pid).toBeGreaterThan(0);
  return pid();
}

it('a stop does not wait for the replacement of a dead worker, which is still loading', async () => {
  await using many = await spawnService({ ...envOf(stores), WORKERS: '2', ...holding(3, 'loading') });
  const { id } = await createSale(many.url, 5);
  process.kill(childrenOf(many.process.pid!)[0]!, 'SIGKILL');
  await untilHeld(many);
  const finish = await beginAttempt(many.url, id);
  many.process.kill('SIGTERM');
  await expectRefused(many.url);
  expect(await finish()).toContain('HTTP/1.1 201');
  await many.ended;
  expect({ code: many.process.exitCode, log: many.log.join('') }).toEqual({
    code: 0,
    log: expect.not.stringContaining('killed by timeout'),
  });
});

it.each(['loading', 'opening'] as const)(
  'a stop during the first start drains each worker that has a request, while one is %s',
  async (how) => {
    const PORT = String(await freePort());
    await using many = launch({ ...envOf(stores), PORT, WORKERS: '2', ...holding(2, how) });
    const at = `http://127.0.0.1:${PORT}`;
    const health = () =>
      fetch(`${at}/healthz`).then(
        ({ status }) => status,
        () => null,
      );
    await expect.poll(health).toBe(200);
    const held = await untilHeld(many);
    const { id } = await createSale(at, 5);
    const finishes = [];
    for (let n = 0; n < 4; n++) finishes.push(await beginAttempt(at, id)); // spread over those that listen
    many.process.kill('SIGTERM');
    await expect.poll(() => many.log.join('')).toContain('"Stopping"');
    if (how === 'opening') process.kill(held, 'SIGWINCH');
    await expectRefused(at);
    const answers = await Promise.all(finishes.map((finish) => finish()));
    for (const answer of answers) expect(answer).toMatch(/HTTP\/1\.1 20[01]/);
    await many.ended;
    expect({ code: many.process.exitCode, log: many.log.join('') }).toEqual({
      code: 0,
      log: expect.not.stringContaining('before it served'),
    });
  },
);

it('reports why it cannot start, and leaves no process', async () => {
  const failing = spawnService({ ...envOf(stores), WORKERS: '2', LOCK: 'redlock' });
  await expect(failing).rejects.toThrow('LOCK=redlock needs REDLOCK_URLS');
});
