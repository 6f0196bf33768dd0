/** One sale by a service on loopback: what every strategy promises, in a second. */
import { parseEnv } from '../config/env.ts';
import { createLogger } from '../metrics/logger.ts';
import { choices } from './core.ts';
import { createService } from './service.ts';

const STOCK = 20;
const CUSTOMERS = 60;
/** Until then `busy` is repeated. */
const BUSY_MS = 60_000;

interface Answer {
  readonly status: number;
  readonly body: Readonly<Record<string, unknown>>;
}

/** @param databaseUrl with tables for this alone @returns which promises were broken */
export async function saleProblems(databaseUrl: string, strategy: string): Promise<string[]> {
  const env = {
    ...{ DATABASE_URL: databaseUrl, REDIS_URL: 'none', STRATEGY: strategy, TASK_WEBHOOK_URL: 'none' },
    ...{ PORT: '0', ADMISSION_MS: '60000' },
  };
  const config = parseEnv(env, choices);
  const log = await createLogger({ level: 'silent', worker: null, terminal: null });
  const service = await createService({ config, urls: { databaseUrl, redisUrl: null }, log });
  try {
    const { port } = await service.listen();
    return await sell(`http://127.0.0.1:${port}`);
  } finally {
    await service.close();
  }
}

/** Each customer buys twice at once; one winner cancels, and a loser gets the unit. */
async function sell(url: string): Promise<string[]> {
  const sale = `/sales/${(await ask(`${url}/sales`, { name: 'check', stock: STOCK, priceCents: 100 })).body.id}`;
  const buy = async (userId: string) => ({ userId, ...(await ask(`${url}${sale}/orders`, { userId })) });
  const users = Array.from({ length: CUSTOMERS }, (_, n) => `customer-${n}`);
  const answers = await Promise.all([...users, ...users].map(buy));
  const problems = judge(answers);
  const winner = answers.find(({ status }) => status < 300);
  const loser = users.find((user) => answers.every(({ userId, status }) => userId !== user || status >= 300));
  if (winner === undefined || loser === undefined) return problems;
  const cancelled = await ask(`${url}/orders/${winner.body.orderId}/cancel`, {});
  const late = await buy(loser);
  if (cancelled.status !== 200 || late.status >= 300)
    problems.push(`A cancelled unit was not sold again: answers ${cancelled.status} and ${late.status}.`);
  const audit = await ask(`${url}${sale}/audit`, null);
  if (audit.body.agrees !== true) problems.push(`The audit of the sale: ${JSON.stringify(audit.body)}`);
  return problems;
}

function judge(answers: readonly (Answer & { readonly userId: string })[]): string[] {
  const bought = answers.filter(({ status }) => status < 300);
  const orders = new Set(bought.map(({ body }) => body.orderId));
  const buyers = new Set(bought.map(({ userId }) => userId));
  const strange = answers.find(({ status }) => ![200, 201, 409].includes(status));
  return [
    ...(orders.size === STOCK ? [] : [`${orders.size} of ${STOCK} units were sold.`]),
    ...(orders.size === buyers.size ? [] : [`${buyers.size} customers have ${orders.size} orders.`]),
    ...(strange ? [`An attempt was answered ${strange.status}: ${JSON.stringify(strange.body)}`] : []),
  ];
}

/** Repeats while the answer is 503. @param body null: GET */
async function ask(url: string, body: object | null): Promise<Answer> {
  const headers = { connection: 'close', 'content-type': 'application/json' };
  const init = body === null ? { headers } : { method: 'POST', headers, body: JSON.stringify(body) };
  for (const startedMs = performance.now(); ; ) {
    const answer = await fetch(url, init);
    const found = { status: answer.status, body: (await answer.json()) as Answer['body'] };
    if (answer.status !== 503 || performance.now() - startedMs > BUSY_MS) return found;
  }
}
