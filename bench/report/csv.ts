/** One row per trial, RFC 4180, for spreadsheets and scripts. */
import type { TrialResult } from '../result.ts';

type Cell = string | number | boolean | null;

const columns: Readonly<Record<string, (trial: TrialResult) => Cell>> = {
  strategy: ({ strategy }) => strategy,
  lock: ({ lock }) => lock,
  round: ({ round }) => round,
  load: ({ load }) => load,
  startedAt: ({ startedAt }) => startedAt,
  attempts: ({ attempts }) => attempts,
  accepted: ({ accepted }) => accepted,
  replayed: ({ replayed }) => replayed,
  soldOut: ({ soldOut }) => soldOut,
  notOpen: ({ notOpen }) => notOpen,
  busy: ({ busy }) => busy,
  unknown: ({ unknown }) => unknown,
  unexpected: ({ unexpected }) => unexpected,
  acceptedPerSecond: ({ acceptedPerSecond }) => acceptedPerSecond,
  attemptsPerSecond: ({ attemptsPerSecond }) => attemptsPerSecond,
  p50Ms: ({ latencyMs }) => latencyMs?.p50 ?? null,
  p90Ms: ({ latencyMs }) => latencyMs?.p90 ?? null,
  p99Ms: ({ latencyMs }) => latencyMs?.p99 ?? null,
  maxMs: ({ latencyMs }) => latencyMs?.max ?? null,
  timeToSellOutMs: ({ timeToSellOutMs }) => timeToSellOutMs,
  verdict: ({ audit }) => audit.verdict,
  oversold: ({ audit }) => audit.oversold,
  undersold: ({ audit }) => audit.undersold,
  duplicates: ({ audit }) => audit.duplicates,
  lost: ({ audit }) => audit.lost,
  phantom: ({ audit }) => audit.phantom,
  drift: ({ audit }) => audit.drift,
  pointsMismatch: ({ audit }) => audit.pointsMismatch,
  returnsMismatch: ({ audit }) => audit.returnsMismatch,
  paymentsMismatch: ({ audit }) => audit.paymentsMismatch,
  tasksMismatch: ({ audit }) => audit.tasksMismatch,
  findings: ({ audit, notes }) => [...audit.findings, ...notes].join('; '),
};

export function toCsv(trials: readonly TrialResult[]): string {
  const rows = trials.map((trial) => Object.values(columns).map((cell) => quote(cell(trial))));
  return [Object.keys(columns), ...rows].map((row) => `${row.join(',')}\r\n`).join('');
}

function quote(cell: Cell): string {
  const text = cell === null ? '' : String(cell);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
