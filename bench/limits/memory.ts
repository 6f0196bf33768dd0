/** `--only memory`: one service under millions of attempts, and how much memory it holds at each million. */

import { migrate } from '../../src/store/migrate.ts';
import { number } from '../audit/check.ts';
import { describeCommit } from '../kit/machine.ts';
import { terminalTable } from '../report/terminal-table.ts';
import type { Service } from '../service.ts';
import { checkStores, untilSettled } from './audit.ts';
import { makeFolder } from './files.ts';
import { launchService } from './launch.ts';
import type { LoadNumbers } from './load.ts';
import { growthText } from './markdown.ts';
import type { LimitsOptions } from './options.ts';
import { residentBytes } from './pin.ts';
import { clock } from './progress.ts';
import type { MemoryResults, Reading } from './results.ts';
import { finish, headerOf, type Run } from './run.ts';
import { insertSales } from './sales.ts';
import { mebibytes, readingColumns, readingTexts } from './table.ts';

const million = 1_000_000;
/** The last reading may exceed the first by this share; more is growth, less is the noise of a collector. */
const flatWithin = 0.15;
const redrawMs = 500;

/** @returns the exit code */
export async function runMemory(run: Run): Promise<number> {
  const { options, out, signal } = run;
  const commit = await describeCommit();
  const startedAt = new Date();
  const folder = await makeFolder(options.out, startedAt);
  await using stores = await run.stores.fresh('memory');
  await migrate(stores.databaseUrl);
  await insertSales(stores.databaseUrl, { sales: 1, buyers: 0, stock: stockOf(options) });
  const confirm = options.variant === 'accepted' ? 'accepted' : 'durable';
  await using service = await launchService({ strategy: 'lua', confirm, ...stores }, run);
  const readings: Reading[] = [];
  let numbers: LoadNumbers | null = null;
  const findings: string[] = [];
  try {
    numbers = await attack(run, service, readings);
    out.write('settling and audit\n');
    await untilSettled(stores, AbortSignal.any([signal, service.died]));
    if (!(await service.stop())) findings.push('the service did not stop in order');
    const accepted = numbers.answers - numbers.refused;
    findings.push(...(await checkStores({ ...stores, inRedis: true, accepted })));
    if (readings.length < 3) findings.push('the memory could not be read often enough');
  } catch (error) {
    if (!signal.aborted) findings.push(error instanceof Error ? error.message : String(error));
  }
  const header = headerOf(run, { startedAt, commit });
  const results = memoryResults(options, readings, numbers, findings);
  if (readings.length > 0) {
    out.write(`\n${terminalTable(readingColumns, readings.map(readingTexts))}\n\n${growthText(results)}\n\n`);
  }
  return finish(run, folder, { ...header, ...results });
}

const stockOf = ({ attempts, variant }: Pick<LimitsOptions, 'attempts' | 'variant'>): number =>
  // The generator sends a few more before it is told to stop.
  variant === 'accepted' ? attempts + million : Math.ceil(attempts / 5);

/** Attempts between two readings: a million, or less where that would be too few readings. */
export const stepOf = (attempts: number): number => Math.min(million, Math.ceil(attempts / 5));

async function attack(run: Run, service: Service, readings: Reading[]): Promise<LoadNumbers> {
  const { options, out, signal, generator } = run;
  const { attempts, connections } = options;
  const step = stepOf(attempts);
  const beganMs = performance.now();
  let sent = 0;
  const read = (at: number): void => {
    const bytes = residentBytes(service.pid);
    if (bytes === null) return;
    readings.push({ attempts: at, residentBytes: bytes, atMs: performance.now() - beganMs });
  };
  const where = (): string => {
    const tookMs = performance.now() - beganMs;
    const left = sent === 0 ? '' : `, about ${clock((tookMs / sent) * Math.max(0, attempts - sent))} left`;
    return `(${clock(tookMs)}${left})`;
  };
  const redraw = (): void => {
    if (!out.isTTY) return;
    const text = `${number(sent)} of ${number(attempts)} attempts  ${where()}`;
    out.write(`\r\u001b[2K${text.slice(0, Math.max(20, (out.columns ?? 80) - 1))}`);
  };
  const onSent = (now: number): void => {
    sent = now;
    while (told + step <= Math.min(sent, attempts)) tell(told + step);
  };
  let told = 0;
  const tell = (at: number): void => {
    told = at;
    read(at);
    const bytes = readings.at(-1)?.residentBytes ?? 0;
    const clear = out.isTTY ? '\r\u001b[2K' : '';
    out.write(
      `${clear}  ${number(at).padStart(11)} attempts  ${mebibytes(bytes).padStart(7)} MiB  ${where()}\n`,
    );
  };
  read(0);
  const timer = setInterval(redraw, redrawMs);
  try {
    return await generator.run({
      url: service.url,
      sales: { first: 1, count: 1 },
      connections,
      customers: 'b',
      durationMs: null,
      attempts,
      onSent,
      signal: AbortSignal.any([signal, service.died]),
    });
  } finally {
    clearInterval(timer);
    if (out.isTTY) out.write('\r\u001b[2K');
  }
}

type Own = Pick<
  MemoryResults,
  | 'kind'
  | 'plan'
  | 'readings'
  | 'accepted'
  | 'refused'
  | 'attemptsPerSecond'
  | 'growth'
  | 'missed'
  | 'shortcomings'
>;

/** Pure. @param numbers null: the load did not come to its end */
export function memoryResults(
  options: Pick<LimitsOptions, 'attempts' | 'variant' | 'connections'>,
  readings: readonly Reading[],
  numbers: LoadNumbers | null,
  findings: readonly string[],
): Own {
  const { attempts, variant, connections } = options;
  const { answers = 0, refused = 0, durationMs = 0 } = numbers ?? {};
  const growth = growthOf(readings);
  const missed =
    growth === null || growth.flat
      ? []
      : [`the memory of the service is not flat: ${growthText({ growth, readings })}`];
  return {
    kind: 'memory',
    plan: { attempts, variant, connections, stock: stockOf(options) },
    readings: [...readings],
    accepted: answers - refused,
    refused,
    attemptsPerSecond: durationMs === 0 ? 0 : answers / (durationMs / 1_000),
    growth,
    missed,
    shortcomings: [...findings],
  };
}

/** From the first step, when the process has grown to its size, to the last. */
function growthOf(readings: readonly Reading[]): MemoryResults['growth'] {
  const [, first, ...others] = readings;
  const last = others.at(-1);
  if (first === undefined || last === undefined) return null;
  const bytes = last.residentBytes - first.residentBytes;
  const share = bytes / first.residentBytes;
  return { bytes, share, flat: share <= flatWithin };
}
