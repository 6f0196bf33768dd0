/** One row per trial, RFC 4180, for spreadsheets and scripts. */
import type { TrialResult } from '../result.ts';

type Cell = string | number | boolean | null;

const columns: Readonly<Record<string, (trial: TrialResult) => Cell>> = {
  strategy: ({ strategy }) => strategy,
  lock: ({ lock }) => lock,
  twin: ({ twin }) => twin,
  round: ({ round }) => round,
  load: ({ load }) => load,
  rush: ({ rush }) => rush?.rate ?? null,
  ratePerSecond: ({ rush }) => rush?.perSecond ?? null,
  rttMs: ({ point }) => point.rttMs,
  connections: ({ point }) => point.connections,
  sales: ({ point }) => point.sales,
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
  acceptedP50Ms: ({ acceptedLatencyMs }) => acceptedLatencyMs?.p50 ?? null,
  acceptedP99Ms: ({ acceptedLatencyMs }) => acceptedLatencyMs?.p99 ?? null,
  refusedP50Ms: ({ refusedLatencyMs }) => refusedLatencyMs?.p50 ?? null,
  refusedP99Ms: ({ refusedLatencyMs }) => refusedLatencyMs?.p99 ?? null,
  timeToSellOutMs: ({ timeToSellOutMs }) => timeToSellOutMs,
  firstComeShare: ({ firstComeShare }) => firstComeShare,
  serviceCpuPer10k: ({ cost }) => cost?.cpu.service ?? null,
  redisCpuPer10k: ({ cost }) => cost?.cpu.redis ?? null,
  postgresCpuPer10k: ({ cost }) => cost?.cpu.postgres ?? null,
  redisCommandsPerAttempt: ({ cost }) => cost?.redisCommands ?? null,
  postgresTransactionsPerAttempt: ({ cost }) => cost?.postgresTransactions ?? null,
  redisRoundTrips: ({ roundTrips }) => roundTrips?.redis ?? null,
  postgresRoundTrips: ({ roundTrips }) => roundTrips?.postgres ?? null,
  invalid: ({ invalid }) => invalid.join('; '),
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
