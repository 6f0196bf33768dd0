/** The cells over HTTP: a server that only replies, or the service, under the same load. */
import { setTimeout as sleep } from 'node:timers/promises';
import { migrate } from '../../src/store/postgres/migrate.ts';
import { strategies } from '../../src/strategies/registry.ts';
import { number } from '../audit/check.ts';
import { startProgram } from '../processes.ts';
import { type Service, youngGeneration } from '../service.ts';
import { checkStores, untilSettled } from './audit.ts';
import type { ServiceSubject } from './cells.ts';
import { launchService } from './launch.ts';
import type { LoadNumbers } from './load.ts';
import { databaseName, type Measured, type Measuring, type Turn } from './measure.ts';
import { pin, watchProcessors } from './pin.ts';
import { insertSales } from './sales.ts';
import type { Listening } from './servers/reply.ts';

/** Units of a sale that no load sells out. */
const plenty = 20_000_000;
/** A sale with a million buyers takes its time to be opened. */
const openMs = 180_000;
/** Between two attempts of the bench's own while a sold-out sale is under load. */
const sampleEveryMs = 200;
const requestMs = 20_000;

export async function measureReply(server: 'bare' | 'express', measuring: Measuring): Promise<Measured> {
  measuring.onStep('starting');
  await using program = startProgram<never, Listening>(`limits/servers/${server}.ts`, [youngGeneration]);
  const isListening = (message: Listening): message is Listening => message.port > 0;
  const { port } = await program.hear(isListening, { signal: measuring.signal });
  await pin(program.pid, measuring.layout.server);
  const url = `http://127.0.0.1:${port}`;
  const own = await purchase(url, 1, 'own-1');
  if (own.status !== 201) throw new Error(`the ${server} server answered ${own.status}`);
  const { warmUp, measured } = await attack({ url, sales: 1, targets: 1, died: program.died }, measuring);
  const refused = warmUp.refused + measured.refused;
  if (refused > 0) throw new Error(`the ${server} server refused ${number(refused)} requests`);
  return { ...numbersOf(measured, 'accepted'), how: measuring.generator.name, findings: null };
}

export async function measureService(
  subject: ServiceSubject,
  turn: Turn,
  measuring: Measuring,
): Promise<Measured> {
  const { signal, onStep } = measuring;
  onStep('starting');
  await using stores = await measuring.stores.fresh(databaseName(turn));
  await migrate(stores.databaseUrl);
  const stock = subject.answer === 'sold-out' ? 1 : plenty + subject.buyers;
  await insertSales(stores.databaseUrl, { ...subject, stock });
  signal.throwIfAborted();
  await using service = await launchService({ ...subject, ...stores }, measuring);
  try {
    return await measureLaunched(service, stores, subject, measuring);
  } catch (error) {
    if (!service.died.aborted || signal.aborted) throw error;
    const log = service.tail().slice(-3).join('\n');
    throw new Error(`${error instanceof Error ? error.message : error}; it logged last:\n${log}`, {
      cause: error,
    });
  }
}

async function measureLaunched(
  service: Service,
  stores: { readonly databaseUrl: string; readonly redisUrl: string },
  subject: ServiceSubject,
  measuring: Measuring,
): Promise<Measured> {
  const { signal, onStep, generator } = measuring;
  const soldOut = subject.answer === 'sold-out';
  onStep('opening');
  const own = new OwnAttempts(service);
  await own.open(signal);
  if (soldOut) await own.seeSoldOut();
  const samples = soldOut ? own.sample() : null;
  const { sales, targets } = subject;
  const target = { url: service.url, sales, targets, died: service.died };
  const { warmUp, measured } = await attack(target, measuring).finally(() => samples?.stop());
  await samples?.done;
  if (soldOut) await own.seeSoldOut();
  onStep('settling');
  await untilSettled(stores, AbortSignal.any([signal, service.died]));
  const stopped = await service.stop();
  onStep('audit');
  const promised = [warmUp, measured].reduce(
    (sum, { answers, refused }) => sum + answers - refused,
    own.accepted,
  );
  const inRedis = strategies.get(subject.strategy)?.description.store === 'redis';
  const findings = await checkStores({ ...stores, inRedis, accepted: promised });
  if (soldOut) findings.push(...own.findings, ...moreThanOne(promised));
  if (!stopped) findings.push('the service did not stop in order');
  return { ...numbersOf(measured, subject.answer), how: generator.name, findings };
}

const moreThanOne = (promised: number): string[] =>
  promised > 1 ? [`${number(promised)} answers promised the one unit`] : [];

interface Target {
  readonly url: string;
  readonly sales: number;
  readonly targets: number;
  readonly died: AbortSignal;
}

type LoadMeasured = LoadNumbers & Pick<Measured, 'processors'>;

/** The load twice: once for the young process to become an old one, once measured. */
async function attack(
  { url, sales, targets, died }: Target,
  { options, generator, signal, onStep }: Measuring,
): Promise<{ readonly warmUp: LoadNumbers; readonly measured: LoadMeasured }> {
  const { connections, warmupMs, durationMs } = options;
  const load = { url, connections, attempts: null, signal: AbortSignal.any([signal, died]) };
  const first = (count: number) => ({ sales: { first: 1, count } });
  onStep('warming up');
  const none = { durationMs: 0, answers: 0, refused: 0, unanswered: 0, latencyMs: null };
  const warmUp =
    warmupMs === 0
      ? none
      : await generator.run({ ...load, ...first(sales), customers: 'a', durationMs: warmupMs });
  onStep('measuring');
  const watched = watchProcessors();
  const measured = await generator.run({ ...load, ...first(targets), customers: 'b', durationMs });
  return { warmUp, measured: { ...measured, processors: watched() } };
}

function numbersOf(
  { durationMs, answers, refused, unanswered, latencyMs, processors }: LoadMeasured,
  expected: ServiceSubject['answer'],
): Omit<Measured, 'how' | 'findings'> {
  const counted = expected === 'accepted' ? answers - refused : refused;
  const others = answers - counted;
  return { counted, measuredMs: durationMs, others, unanswered, latencyMs, processors };
}

/** Attempts of the bench itself, whose answers it reads. */
class OwnAttempts {
  readonly findings: string[] = [];
  readonly #service: Service;
  #attempts = 0;
  accepted = 0;

  constructor(service: Service) {
    this.#service = service;
  }

  /** Attempts until the service has opened the first sale, and sells. */
  async open(signal: AbortSignal): Promise<void> {
    const untilMs = performance.now() + openMs;
    for (;;) {
      // A request that takes too long is like one that is told to come again.
      const late = { status: 504, type: 'nothing in time' };
      const { status, type } = await this.#attempt().catch(() => late);
      if (status === 201 || status === 202) return;
      if (performance.now() > untilMs || status < 500) {
        throw new Error(`the first attempt was answered with ${status} ${type}`);
      }
      await sleep(200, undefined, { signal }).catch(() => signal.throwIfAborted());
    }
  }

  async seeSoldOut(): Promise<void> {
    const answer = await this.#attempt().catch(() => null);
    if (answer?.status === 409 && answer.type.endsWith('/sold-out')) return;
    const how = answer === null ? 'not answered' : `answered with ${answer.status} ${answer.type}`;
    this.findings.push(`an attempt on a sold-out sale was ${how}`);
  }

  /** Looks again and again while the load runs. */
  sample(): { stop(): void; readonly done: Promise<void> } {
    const stopped = new AbortController();
    const look = async (): Promise<void> => {
      while (!stopped.signal.aborted) {
        await this.seeSoldOut();
        await sleep(sampleEveryMs, undefined, { signal: stopped.signal }).catch(() => {});
      }
    };
    return { stop: () => stopped.abort(), done: look() };
  }

  async #attempt(): Promise<{ readonly status: number; readonly type: string }> {
    this.#attempts++;
    const answer = await purchase(this.#service.url, 1, `own-${this.#attempts}`);
    if (answer.status < 300) this.accepted++;
    return answer;
  }
}

/** One attempt. @returns the status, and the type of the problem, or '' */
async function purchase(
  url: string,
  saleId: number,
  userId: string,
): Promise<{ readonly status: number; readonly type: string }> {
  const response = await fetch(`${url}/sales/${saleId}/orders`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ userId }),
    signal: AbortSignal.timeout(requestMs),
  });
  const body = (await response.json()) as { readonly type?: unknown };
  return { status: response.status, type: typeof body.type === 'string' ? body.type : '' };
}
