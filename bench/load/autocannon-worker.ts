/**
 * A worker of autocannon: one load, then its numbers. The context of `setupRequest` and `onResponse` belongs to one
 * connection and one request. autocannon builds each request anew, so that an attempt costs 50 µs of CPU.
 *
 * autocannon 9 keeps a partial answer of a lost connection in its parser, and may take it for the start of another. An
 * accepted answer therefore counts for its attempt only if it names the customer, and no attempt has two answers.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { createHistogram } from 'node:perf_hooks';
import autocannon from 'autocannon';
import { answerLine } from './answer.ts';
import type { FromWorker, WorkerLoad } from './autocannon.ts';
import { oneUnit, purchaseBody } from './purchase.ts';
import { answerTimeoutMs, attemptOf, type RateNumbers } from './rate.ts';

interface Attempt {
  readonly n: number;
  readonly userId: string;
  readonly sentUs: number;
  isAnswered: boolean;
}

const tellEveryMs = 100;
const send = (message: FromWorker): void => void process.send?.(message);
const nowUs = (): number => Math.round(Number(process.hrtime.bigint()) / 1_000);

process.on('disconnect', () => process.exit(0));
process.once('message', (load: WorkerLoad) => void fire(load));
send({ kind: 'ready' });

async function fire(load: WorkerLoad): Promise<void> {
  const { url, connections, durationMs, attempts, first, step, lines: path } = load;
  const tickets = load.tickets === undefined ? null : (await readFile(load.tickets, 'latin1')).split('\n');
  const attempt = attemptOf(load);
  const latencyUs = createHistogram();
  const lines: string[] = [];
  let [sent, answers, refused] = [0, 0, 0];
  const purchase: autocannon.Request = {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    setupRequest(request, context) {
      const n = first + sent++ * step;
      const { saleId, userId } = attempt(n);
      const sentUs = nowUs();
      Object.assign(context, { n, userId, sentUs, isAnswered: false } satisfies Attempt);
      if (path !== null) lines.push(`[${n},${sentUs}]`);
      if (tickets !== null)
        request.headers = { ...request.headers, authorization: `Bearer ${tickets[n - 1]}` };
      request.path = `/sales/${saleId}/orders`;
      request.body = purchaseBody(userId, load.quantities ?? oneUnit);
      return request;
    },
    onResponse(status, body, context) {
      const current = context as Attempt;
      const { n, userId, sentUs } = current;
      if (current.isAnswered || (status < 300 && !body.includes(userId))) return;
      current.isAnswered = true;
      const us = nowUs();
      if (path !== null) lines.push(answerLine(n, us, status, body));
      answers++;
      if (status >= 400) refused++;
      latencyUs.record(Math.max(1, us - sentUs));
    },
  };
  const ends = attempts === null ? { duration: durationMs! / 1_000 } : { amount: attempts };
  const options = { url, connections, timeout: answerTimeoutMs / 1_000, sampleInt: 20, ...ends };
  const progress = setInterval(() => send({ kind: 'sent', sent }), tellEveryMs);
  const [cpuBefore, beganMs] = [process.cpuUsage(), performance.now()];
  const { errors } = await autocannon({ ...options, requests: [purchase], skipAggregateResult: true });
  clearInterval(progress);
  const elapsedMs = performance.now() - beganMs;
  const { user, system } = process.cpuUsage(cpuBefore);
  if (path !== null) await writeFile(path, lines.map((line) => `${line}\n`).join(''));
  const atMs = (percent: number): number => latencyUs.percentile(percent) / 1_000;
  const latencyMs = answers === 0 ? null : { p50: atMs(50), p99: atMs(99) };
  const cpuS = (user + system) / 1e6;
  const counts: RateNumbers = {
    durationMs: elapsedMs,
    answers,
    refused,
    unanswered: errors,
    latencyMs,
    cpuS,
  };
  send({ kind: 'done', sent, numbers: counts });
}
