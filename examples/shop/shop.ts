/**
 * A shop behind whose checkout Stampede decides who gets a unit: docs/how-to/behind-your-checkout.md explains it.
 *
 *   shop_orders     asked ──▶ reserved ──▶ paid        one row for each customer of a sale
 *                    ▲ ├────────┴───────────┴──▶ refused, with a reason
 *                    └─┴─ the customer asks again ──┘
 *   shop_payments   received ──▶ reported              one row for each payment at the provider
 *   shop_tasks      stored ──▶ done                    one row for each parcel and each refund that Stampede asks for
 *
 * Each arrow is a step: the row is written first; then the step calls another system, in a way that may be repeated; one statement marks
 * it as done. A process that dies before this statement repeats the step, and so may two processes at once. Nothing is locked.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import express from 'express';
import pg from 'pg';
import { GaveUpError, Stampede, type StampedeTask, verifyWebhook } from '../../src/client/index.ts'; // yours: '@stampede/client'

/** @throws when it is missing: anyone can sign with an empty secret */
function setting(name: string): string {
  const value = process.env[name];
  if (value === undefined || value === '') throw new Error(`${name} is missing`);
  return value;
}
const providerUrl = setting('PROVIDER_URL');
const providerSecret = setting('PROVIDER_SECRET');
const taskSecret = setting('TASK_WEBHOOK_SECRET');
const [paymentSecret = ''] = setting('PAYMENT_WEBHOOK_SECRETS').split(',');
/** The name in front of a secret, such as `stripe:`: Stampede keeps the ids of payments with it. Without one, empty. */
const PREFIX = paymentSecret.slice(0, paymentSecret.indexOf(':') + 1);
const stampede = new Stampede({
  url: setting('STAMPEDE_URL'),
  paymentSecret,
  token: process.env.ADMIN_TOKEN, // without one, Stampede has to be on this machine
  withinMs: 8_000, // a customer waits no longer; what has no answer by then is repeated below
});
/** How long the customer has at the provider. */
const HOLD_S = 600;
/** A customer who asked longer ago is gone. */
const ASKED_S = 300;
/** Between two passes over the rows that are not finished. */
const PASS_MS = Number(process.env.PASS_MS ?? 5_000);

const TABLES = `
CREATE TABLE IF NOT EXISTS shop_orders (
  sale_id integer NOT NULL,
  user_id text NOT NULL,
  state text NOT NULL DEFAULT 'asked' CHECK (state IN ('asked', 'reserved', 'paid', 'refused')),
  reason text,
  order_id uuid UNIQUE, -- of Stampede
  asked_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (sale_id, user_id)
);
CREATE TABLE IF NOT EXISTS shop_payments (
  id text PRIMARY KEY, -- at the provider
  order_id uuid NOT NULL,
  amount_cents integer NOT NULL,
  received_at timestamptz NOT NULL DEFAULT now(),
  reported_at timestamptz
);
CREATE TABLE IF NOT EXISTS shop_tasks (
  key text PRIMARY KEY,
  kind text NOT NULL,
  payload jsonb NOT NULL,
  stored_at timestamptz NOT NULL DEFAULT now(),
  done_at timestamptz
)`;
const database = new pg.Pool({ connectionString: setting('DATABASE_URL'), max: 10 });
database.on('error', (error) => console.error('a connection to Postgres broke:', error.message));
const sql = async <Row extends pg.QueryResultRow>(text: string, ...values: unknown[]): Promise<Row[]> =>
  (await database.query<Row>(text, values)).rows;

interface OrderRow {
  readonly sale_id: number;
  readonly user_id: string;
  readonly state: 'asked' | 'reserved' | 'paid' | 'refused';
  readonly reason: string | null;
  readonly order_id: string | null;
}
interface PaymentRow {
  readonly id: string;
  readonly order_id: string;
  readonly amount_cents: number;
}
interface TaskRow {
  readonly key: string;
  readonly kind: string;
  readonly payload: { orderId: string; amountCents?: number; paymentNotificationId?: string };
}
interface PaymentEvent {
  readonly type: string;
  readonly data: { readonly id: string; readonly orderId: string; readonly amountCents: number };
}

/** Asks the provider. It does a request with the same key once. @throws for an answer that is not 2xx, or none */
async function provider(path: string, key: string, body: object): Promise<{ id: string; url?: string }> {
  const headers = { 'content-type': 'application/json', 'idempotency-key': key };
  const request = { method: 'POST', headers, body: JSON.stringify(body), signal: AbortSignal.timeout(8_000) };
  const answer = await fetch(providerUrl + path, request);
  if (!answer.ok) throw new Error(`the provider answered ${answer.status} to ${path}`);
  return answer.json() as Promise<{ id: string; url?: string }>;
}

/** @param from the states that it ends: a payment may have changed the state meanwhile */
const refuse = (orderId: string, from: readonly OrderRow['state'][], reason: string) =>
  sql(
    `UPDATE shop_orders SET state = 'refused', reason = $3 WHERE order_id = $1 AND state = ANY ($2)`,
    ...[orderId, from, reason],
  );

/** An administrator may have passed the order on: then it is that of this customer, and no longer that of another row. */
const takeOver = (orderId: string, saleId: number, userId: string) =>
  sql(
    `UPDATE shop_orders SET state = 'refused', reason = 'transferred', order_id = NULL
     WHERE order_id = $1 AND (sale_id, user_id) <> ($2, $3)`,
    ...[orderId, saleId, userId],
  );
/** Whether no refund of order $3 was asked for. */
const NOT_REFUNDED = "NOT EXISTS (SELECT FROM shop_tasks WHERE key = 'refund:' || $3::uuid)";

/** asked ──▶ reserved, paid or refused. Stampede returns the order that an earlier request of this row placed, or places one. */
async function reserve({ sale_id, user_id }: OrderRow): Promise<void> {
  const answer = await stampede.placeOrder(sale_id, { userId: user_id });
  switch (answer.kind) {
    case 'accepted':
    case 'replayed': {
      const { orderId, status } = answer.order;
      await takeOver(orderId, sale_id, user_id);
      await sql(
        `UPDATE shop_orders SET state = CASE WHEN $4 = 'paid' AND ${NOT_REFUNDED} THEN 'paid' ELSE 'reserved' END,
           reason = NULL, order_id = $3
         WHERE sale_id = $1 AND user_id = $2 AND state IN ('asked', 'refused')`,
        ...[sale_id, user_id, orderId, status],
      );
      break;
    }
    case 'busy':
    case 'too-many-requests':
      break; // nothing happened: the next pass, or the customer, asks again
    default:
      // An earlier request that had no answer may still place an order. It expires, unless the customer asks again and gets it.
      await sql(
        `UPDATE shop_orders SET state = 'refused', reason = $3
         WHERE sale_id = $1 AND user_id = $2 AND state = 'asked'`,
        ...[sale_id, user_id, answer.kind],
      );
  }
}

/** received ──▶ reported. Stampede counts a payment once, and decides whether it buys the units or is owed back. */
async function report({ id, order_id, amount_cents }: PaymentRow): Promise<void> {
  const payment = { notificationId: id, orderId: order_id, amountCents: amount_cents };
  const answer = await stampede.reportPayment(payment);
  // A conflict is not refunded: the payment may be one that was kept. Its row stays, and the log names it, until a person decides.
  if (answer.kind === 'unmatched' && answer.reason !== 'conflict') {
    // It is of no order: Stampede asks for no refund. In one statement, so that a payment that is refunded is never reported again.
    const task = { orderId: order_id, amountCents: amount_cents, paymentNotificationId: PREFIX + id };
    await sql(
      `WITH reported AS (UPDATE shop_payments SET reported_at = now() WHERE id = $1 AND reported_at IS NULL RETURNING id)
       INSERT INTO shop_tasks (key, kind, payload) SELECT $3, 'refund', $2 FROM reported`,
      ...[id, task, `refund:unmatched:${encodeURIComponent(id)}`], // a key is sent as a header
    );
    return;
  }
  if (answer.kind !== 'done')
    throw new Error(`Stampede answered ${JSON.stringify(answer)} to payment ${id} of order ${order_id}`);
  const { saleId, userId, status } = answer.value;
  if (status === 'paid') {
    await takeOver(order_id, saleId, userId);
    await sql(
      `UPDATE shop_orders SET state = 'paid', reason = NULL, order_id = $3::uuid
       WHERE sale_id = $1 AND user_id = $2 AND ${NOT_REFUNDED}`,
      ...[saleId, userId, order_id],
    );
  }
  await sql('UPDATE shop_payments SET reported_at = now() WHERE id = $1', id);
}

/** stored ──▶ done. The provider knows a task by its key. */
async function carryOut({ key, kind, payload }: TaskRow): Promise<void> {
  const { orderId, amountCents, paymentNotificationId = '' } = payload;
  if (kind === 'ship') {
    const order = await stampede.getOrder(orderId);
    if (order.kind !== 'done') throw new Error(`Stampede answered ${order.kind} to order ${orderId}`);
    // An administrator may have refunded it since the task was stored.
    if (order.value.status === 'paid') await provider('/parcels', key, { orderId });
  } else if (kind === 'refund') {
    // A payment that was reported before the secret had a name has none.
    const length = paymentNotificationId.startsWith(PREFIX) ? PREFIX.length : 0;
    await provider('/refunds', key, { paymentId: paymentNotificationId.slice(length), amountCents });
    if (key === `refund:${orderId}`) await refuse(orderId, ['reserved', 'paid'], 'refunded'); // others are of further payments
  }
  await sql('UPDATE shop_tasks SET done_at = now() WHERE key = $1', key);
}

/** Runs a step of a row. If it fails, the row stays as it is, and the next pass repeats the step. */
async function attempt<Row>(step: (row: Row) => Promise<void>, row: Row): Promise<void> {
  await step(row).catch((error) => console.error(`${step.name} is repeated later:`, error));
}

/** Repeats the steps that did not finish, such as those of a process that died. */
async function pass(): Promise<void> {
  const each = async <Row extends pg.QueryResultRow>(text: string, step: (row: Row) => Promise<void>) => {
    const rows = await sql<Row>(`${text} ORDER BY random() LIMIT 20`); // rows that always fail hold up no others
    await Promise.all(rows.map((row) => attempt(step, row)));
  };
  await sql(
    `UPDATE shop_orders SET state = 'refused', reason = 'no-answer'
     WHERE state = 'asked' AND asked_at < now() - $1 * interval '1 second'`,
    ASKED_S,
  );
  await each(`SELECT * FROM shop_orders WHERE state = 'asked'`, reserve);
  await each('SELECT * FROM shop_payments WHERE reported_at IS NULL', report);
  await each('SELECT * FROM shop_tasks WHERE done_at IS NULL', carryOut);
}

const find = async (saleId: number, userId: string) =>
  (await sql<OrderRow>('SELECT * FROM shop_orders WHERE sale_id = $1 AND user_id = $2', saleId, userId))[0];

/** What the customer sees. `payAt`: where to pay. */
type Shown = Pick<OrderRow, 'state' | 'reason'> & { readonly payAt?: string | undefined };

/** The customer wants a unit, or comes back. Safe to repeat at any time. @throws GaveUpError when Stampede does not answer */
async function checkout(saleId: number, userId: string): Promise<Shown> {
  await sql(
    `INSERT INTO shop_orders (sale_id, user_id) VALUES ($1, $2)
     ON CONFLICT (sale_id, user_id) DO UPDATE SET state = 'asked', asked_at = now(), reason = NULL, order_id = NULL
     WHERE shop_orders.state = 'refused'`,
    ...[saleId, userId],
  );
  const asked = (await find(saleId, userId))!;
  if (asked.state === 'asked') await reserve(asked);
  const row = (await find(saleId, userId))!;
  if ((row.state !== 'reserved' && row.state !== 'paid') || row.order_id === null) return row;
  // The payment begins: its order must not expire meanwhile. An order that may be held no longer is paid by its deadline.
  const held = row.state === 'reserved' ? await stampede.extendOrder(row.order_id, HOLD_S) : null;
  const order = held?.kind === 'done' ? held : await stampede.getOrder(row.order_id);
  if (order.kind !== 'done' && order.kind !== 'unknown-order')
    throw new Error(`Stampede answered ${order.kind}`);
  if (order.kind === 'done' && order.value.userId !== userId) {
    await takeOver(row.order_id, saleId, order.value.userId);
    return { state: 'refused', reason: 'transferred' }; // the customer may ask again
  }
  if (row.state === 'paid') return row;
  if (order.kind === 'done' && order.value.status === 'pending') {
    const { amountCents } = order.value;
    const { url } = await provider('/payments', row.order_id, { orderId: row.order_id, amountCents });
    return { ...row, payAt: url };
  }
  if (order.kind === 'done' && order.value.status === 'paid') return { ...row, state: 'paid' }; // the report will mark it
  await refuse(row.order_id, ['reserved'], 'expired'); // or cancelled: the customer may ask again
  return { ...row, state: 'refused', reason: 'expired' };
}

const app = express();

// A shop takes the customer from its session, never from the body.
app.post('/checkout', express.json(), async (req, res) => {
  const { saleId, userId } = req.body ?? {};
  const isId = Number.isInteger(saleId) && saleId > 0 && saleId < 2 ** 31;
  if (!isId || typeof userId !== 'string') return void res.sendStatus(400);
  const { state, reason, payAt } = await checkout(saleId, userId);
  res.status(state === 'asked' ? 202 : state === 'refused' ? 409 : 200).json({ state, reason, payAt });
});

app.get('/checkout/:saleId/:userId', async (req, res) => {
  const row = await find(Number(req.params.saleId), req.params.userId);
  if (row === undefined) return void res.sendStatus(404);
  res.json({ state: row.state, reason: row.reason });
});

/** The body as it was signed. */
const raw = express.raw({ type: '*/*' });

app.post('/webhooks/provider', raw, async (req, res) => {
  // Most providers sign in their own way: examples/stripe.ts has Stripe's way.
  const verified = await verifyWebhook<PaymentEvent>(providerSecret, req.headers, req.body);
  if (verified.kind === 'refused') return void res.sendStatus(401);
  const { type, data } = verified.body;
  if (type === 'payment.succeeded') {
    const [payment] = await sql<PaymentRow>(
      `INSERT INTO shop_payments (id, order_id, amount_cents) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING *`,
      ...[data.id, data.orderId, data.amountCents],
    );
    if (payment !== undefined) void attempt(report, payment);
  }
  res.sendStatus(204); // it is stored: the provider need not send it again
});

app.post('/webhooks/stampede', raw, async (req, res) => {
  const verified = await verifyWebhook<StampedeTask>(taskSecret, req.headers, req.body);
  if (verified.kind === 'refused') return void res.sendStatus(401);
  const { key, kind, payload } = verified.body;
  const [task] = await sql<TaskRow>(
    'INSERT INTO shop_tasks (key, kind, payload) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING RETURNING *',
    ...[key, kind, payload],
  );
  if (task !== undefined) void attempt(carryOut, task);
  res.sendStatus(204);
});

app.use(((error, _req, res, _next) => {
  console.error(error);
  // The row is there. Whatever became of the request, the same one again finds it.
  res
    .status(error instanceof GaveUpError ? 503 : 500)
    .set('retry-after', '2')
    .json({ state: 'asked' });
}) satisfies express.ErrorRequestHandler);

await sql(TABLES);
const server = app.listen(Number(process.env.PORT ?? 4000), '127.0.0.1', async () => {
  console.log(`the shop listens on ${JSON.stringify(server.address())}`);
  for (;;) {
    await pass().catch((error) => console.error('Postgres does not answer:', error));
    await sleep(PASS_MS);
  }
});
