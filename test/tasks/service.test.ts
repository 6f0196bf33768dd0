/** Whole services: what they deliver, even when one is killed, and what operators see and do. */

import { beforeAll, describe, expect, it } from 'vitest';
import { type StampedeTask, verifyWebhook } from '../../src/client/index.ts';
import { buy, call, createSale, eventually, post } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { age, writeTasks } from '../support/outbox.ts';
import { openReceiver } from '../support/receiver.ts';
import { OwnRedis } from '../support/servers.ts';
import { spawnService, startService, type TestService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const stores = opened(openTestStores);
/** The receiver: its requests by idempotency key, and the status that it answers; null: no answer. */
const seen = new Map<string, number>();
let answer: number | null = 200;
const receiver = opened(() =>
  openReceiver((req, res) => {
    const key = String(req.headers['idempotency-key']);
    seen.set(key, (seen.get(key) ?? 0) + 1);
    if (answer !== null) res.writeHead(answer).end();
  }),
);
let env: Record<string, string>;

beforeAll(() => {
  const url = Object.assign(new URL(receiver.url), {
    username: 'ann',
    password: 'secret-of-ann',
    pathname: '/tasks',
  });
  env = { ...envOf(stores), TASK_WEBHOOK_URL: url.href };
});

const keyOf = async (id: number) =>
  (await stores.sql.query<{ key: string }>('SELECT key FROM tasks WHERE id = $1', [id])).rows[0]!.key;
const taskOf = async (service: TestService, id: number) =>
  ((await call(`${service.url}/tasks?limit=1000`)).body as unknown as Record<string, unknown>[]).find(
    (task) => task.id === id,
  )!;
const until = (service: TestService, id: number, state: string) =>
  eventually(
    () => taskOf(service, id),
    (task) => task.state === state,
  );

describe('several services', () => {
  it('deliver tasks while Redis is down', async () => {
    await using redis = await OwnRedis.open();
    await using service = await startService({ ...env, REDIS_URL: redis.url, STRATEGY: 'group-commit' });
    await redis.kill();
    const [id] = await writeTasks(stores, 1);
    await until(service, id!, 'done');
  });

  it('continue the task of a killed service', async () => {
    seen.clear();
    answer = null;
    const killed = await spawnService(env);
    const [id] = await writeTasks(stores, 1);
    const key = await keyOf(id!);
    await expect.poll(() => seen.get(key)).toBe(1);
    await killed.kill();
    answer = 200;
    // However late the other service starts, it does not find the task abandoned yet.
    await stores.sql.query(`UPDATE tasks SET updated_at = now() + interval '9 min' WHERE id = $1`, [id]);
    await using other = await startService(env);
    expect(await taskOf(other, id!)).toMatchObject({ state: 'processing', attempts: 1 });
    await age(stores, 'processing');
    const done = await until(other, id!, 'done');
    expect(done).toMatchObject({ attempts: 2, lastError: 'attempt 1: its worker died' });
    expect(seen.get(key)).toBe(2); // with the same key: the receiver can deduplicate
    const { text } = (await call(`${other.url}/metrics`)).body;
    expect(text).toMatch(/stampede_tasks_reclaimed_total\{from="processing"\} 1/);
    expect(text).toMatch(/stampede_task_duration_seconds_count\{kind="ship",result="done"\} 1/);
  });

  it('deliver the shipping and points tasks of a paid order once, however often the payment is reported', async () => {
    seen.clear();
    answer = 200;
    await using service = await startService(env);
    const sale = await createSale(service.url, 1);
    const { orderId } = (await buy(service.url, sale.id, 'payer')).body;
    const payment = { notificationId: 'p-1', orderId, amountCents: 500 };
    for (let i = 0; i < 3; i++) {
      expect((await post(`${service.url}/payments/notifications`, payment)).status).toBe(200);
    }
    await expect.poll(() => seen.size).toBe(2);
    expect(Object.fromEntries(seen)).toEqual({ [`ship:${orderId}`]: 1, [`award:${orderId}`]: 1 });
    const tasks = (await call(`${service.url}/tasks?limit=2`)).body;
    expect(tasks).toEqual(
      expect.arrayContaining([
        expect.objectContaining({
          kind: 'ship',
          payload: { orderId, saleId: sale.id, userId: 'payer', quantity: 1 },
        }),
        expect.objectContaining({ kind: 'award', payload: { orderId, userId: 'payer', points: 5 } }),
      ]),
    );
  });

  it('deliver the refunds of further payments, signed, whatever their ids are', async () => {
    const secret = `whsec_${Buffer.alloc(32, 's').toString('base64')}`;
    const keys: string[] = [];
    await using verifying = await openReceiver(async (req, res) => {
      let body = '';
      for await (const chunk of req) body += chunk;
      const verified = await verifyWebhook<StampedeTask>(secret, req.headers, body);
      if (verified.kind === 'verified' && verified.body.kind === 'refund') {
        const { key } = verified.body;
        keys.push(key);
        expect([verified.id, req.headers['idempotency-key']]).toEqual([key, key]);
      }
      res.writeHead(verified.kind === 'verified' ? 204 : 401).end();
    });
    const to = { TASK_WEBHOOK_URL: verifying.url, TASK_WEBHOOK_SECRET: secret };
    await using service = await startService({ ...env, ...to });
    const { id } = await createSale(service.url, 1);
    const { orderId } = (await buy(service.url, id, 'payer')).body;
    const ids = ['first', '振込-42', 'ends ', 'ends%20', 'été', 'stripe:pi_1'];
    for (const notificationId of ids)
      await post(`${service.url}/payments/notifications`, { notificationId, orderId, amountCents: 500 });
    const encoded = ['%E6%8C%AF%E8%BE%BC-42', 'ends%20', 'ends%2520', '%C3%A9t%C3%A9', 'stripe:pi_1'];
    await expect
      .poll(() => keys.toSorted())
      .toEqual(encoded.map((payment) => `refund:${orderId}:${payment}`).sort());
  });

  it('claim no task without a receiver, and /readyz says so until another service has delivered it', async () => {
    answer = 200;
    await using service = await startService({ ...env, TASK_WEBHOOK_URL: '' });
    const waiting = [(await writeTasks(stores, 1))[0]!, (await writeTasks(stores, 1, 'event'))[0]!];
    const [unknown] = await writeTasks(stores, 1, 'nobody-handles-this');
    await until(service, unknown!, 'dead'); // written last, so it was due after the others
    for (const id of waiting)
      expect(await taskOf(service, id)).toMatchObject({ state: 'waiting', attempts: 0 });
    const readiness = () => call(`${service.url}/readyz`);
    const detail = expect.stringMatching(/2 failing; .*(TASK|EVENT)_WEBHOOK_URL is not set/);
    const body = { status: 'degraded', degraded: [{ what: 'receivers', detail }] };
    await expect.poll(readiness).toMatchObject({ status: 200, body });
    const { text } = (await call(`${service.url}/metrics`)).body;
    expect(text).toMatch(/^stampede_background_failing\{loop="receivers"\} 2$/m);
    const urls = { EVENT_WEBHOOK_URL: env.TASK_WEBHOOK_URL! };
    await using other = await startService({ ...env, ...urls });
    for (const id of waiting) await until(other, id, 'done');
    await eventually(readiness, ({ body }) => body.status === 'ok');
    await stores.sql.query('DELETE FROM tasks WHERE id = $1', [unknown]);
  });
});

describe('operators', () => {
  beforeAll(() => {
    answer = 500;
  });
  const service = opened(() => startService(env));

  it('see in /readyz that the receiver of tasks keeps failing, until it accepts them', async () => {
    await stores.sql.query(
      `INSERT INTO tasks (kind, key, payload, attempts) VALUES ('ship', 'fails', '{}', 2)`,
    );
    const readiness = () => call(`${service.url}/readyz`);
    const detail = expect.stringMatching(/^1 failing; ship tasks: retried or dead: .*500/);
    const degraded = [{ what: 'receivers', detail }];
    await expect.poll(readiness).toMatchObject({ status: 200, body: { status: 'degraded', degraded } });
    answer = 200;
    await stores.sql.query(`UPDATE tasks SET run_at = now() WHERE key = 'fails'`);
    await eventually(readiness, ({ body }) => body.status === 'ok');
    answer = 500;
  });

  it('see tasks, newest first, by state', async () => {
    await stores.sql.query(
      `INSERT INTO tasks (kind, key, payload, state) SELECT 'ship', 'old:' || n, '{}', 'done' FROM generate_series(1, 100) n`,
    );
    const [first, second] = await writeTasks(stores, 2, 'nobody-handles-this');
    await until(service, second!, 'dead');
    await until(service, first!, 'dead');
    const dead = (await call(`${service.url}/tasks?state=dead`)).body as unknown as Record<string, unknown>[];
    expect(dead.map(({ id }) => id)).toEqual([second, first]);
    const instant = expect.stringMatching(/^\d{4}-.*Z$/);
    expect(dead[1]).toEqual({
      id: first,
      kind: 'nobody-handles-this',
      key: await keyOf(first!),
      payload: { n: 1 },
      state: 'dead',
      attempts: 1,
      runAt: instant,
      lastError: 'attempt 1: no handler for the kind nobody-handles-this',
      createdAt: instant,
      updatedAt: instant,
    });
    const one = await call(`${service.url}/tasks?state=dead&limit=1`);
    expect(one.body).toEqual([dead[0]]);
    const all = (await call(`${service.url}/tasks`)).body as unknown as { id: number; state: string }[];
    expect(all).toHaveLength(100);
    expect(all.map(({ id }) => id)).toEqual(all.map(({ id }) => id).sort((a, b) => b - a));
    expect((await call(`${service.url}/metrics`)).body.text).toMatch(/^stampede_tasks\{state="dead"\} 2$/m);
  });

  it('see why a task is pending, and retry a dead task', async () => {
    const [id] = await writeTasks(stores, 1);
    const failed = await until(service, id!, 'retry');
    expect(failed.lastError).toMatch(/^attempt \d+: the webhook answered 500$/);
    const retry = () => post(`${service.url}/tasks/${id}/retry`, {});
    expect(await retry()).toMatchObject({ status: 409, problem: 'invalid-transition' });
    await stores.sql.query(`UPDATE tasks SET state = 'dead' WHERE id = $1`, [id]);
    answer = 200;
    expect(await retry()).toMatchObject({ status: 200, body: { id, state: 'waiting' } });
    await until(service, id!, 'done');
    expect(await retry()).toMatchObject({ status: 409, body: { state: 'done' } });
  });

  it.each([
    ['/tasks?sate=dead', 400, 'invalid-request'],
    ['/tasks?limit=1001', 400, 'invalid-request'],
    ['/tasks/424242/retry', 404, 'unknown-task'],
    ['/tasks/9007199254740992/discard', 400, 'invalid-request'],
  ])('learn what is wrong with %s', async (path, status, problem) => {
    const ask = path.includes('?') ? call(service.url + path) : post(service.url + path, {});
    expect(await ask).toMatchObject({ status, problem });
  });
});
