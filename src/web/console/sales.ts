/** All sales, read every 2 seconds, and from that how fast they sell. */
import { signal } from '@preact/signals';
import type { Sale } from '../ui/answers.ts';
import { SAMPLES, type Series } from './chart.tsx';
import { failureOf, LONGEST, newestOf, REFRESH_MS } from './list.tsx';
import { nowMs } from './time.tsx';
import { asAdmin } from './token.ts';

/** A part of the panel of a sale. */
export interface SaleProps {
  readonly sale: Sale;
  /** Reads the sale again. */
  readonly refresh: () => Promise<void>;
}

interface Sample {
  readonly atMs: number;
  readonly sold: ReadonlyMap<number, number>;
}
const samples = signal<readonly Sample[]>([]);

/** The newest sales, at most as many as the API lists; null: not read yet. */
export const sales = signal<readonly Sale[] | null>(null);
/** When they were read, by the server's clock. */
export const readMs = signal(0);
/** Why the latest read failed; null: it did not. */
export const failure = signal<string | null>(null);

const newest = newestOf();

export async function refreshSales(): Promise<void> {
  const answer = await newest(asAdmin<readonly Sale[]>(`/sales?limit=${LONGEST}`));
  if (answer === null) return;
  failure.value = failureOf(answer);
  if (answer.kind === 'ok') {
    readMs.value = nowMs();
    sales.value = answer.body;
  }
  const read = answer.kind === 'ok' ? answer.body : []; // a failed read is a gap
  const sold = new Map(read.map((sale) => [sale.id, sale.sold]));
  const last = samples.value.at(-1);
  // A read after a change comes between two others: too soon to tell a rate.
  if (last && performance.now() - last.atMs < REFRESH_MS / 2) return;
  samples.value = [...samples.value, { atMs: performance.now(), sold }].slice(-SAMPLES - 1);
}

/** Units sold per second between two samples; null: the page was hidden, a read failed, or the sale was not there. */
function rates(
  soldIn: (sample: Sample, before: Sample) => readonly [now: number | undefined, before: number | undefined],
): Series {
  return samples.value.slice(1).map((sample, n) => {
    const before = samples.value[n]!;
    const ms = sample.atMs - before.atMs;
    const [sold, soldBefore] = soldIn(sample, before);
    if (ms > 4 * REFRESH_MS || sold === undefined || soldBefore === undefined) return null;
    return Math.max(0, ((sold - soldBefore) * 1_000) / ms);
  });
}

export const ratesOf = (id: number): Series =>
  rates((sample, before) => [sample.sold.get(id), before.sold.get(id)]);

/** Of all sales together. */
export const allRates = (): Series =>
  rates((sample, before) => {
    if (sample.sold.size * before.sold.size === 0) return [undefined, undefined];
    const both = [...sample.sold].flatMap(([id, sold]) => {
      const soldBefore = before.sold.get(id);
      return soldBefore === undefined ? [] : [Math.max(0, sold - soldBefore)];
    });
    return [both.reduce((sum, n) => sum + n, 0), 0];
  });
