/** The figures and checks of a trial, as data. */
import type { CheckName } from '../../../lab/audit/audit.ts';
import { type MetricRow, metricsOf } from '../../kit/metrics.ts';
import type { CheckInfo } from '../../kit/suite.ts';
import type { StrategyResult } from './result.ts';

type Read = (result: StrategyResult) => number | null | undefined;

const of =
  (kind: StrategyResult['load']) =>
  (read: Read): Read =>
  (result) =>
    result.load === kind ? read(result) : null;
const closed = of('closed');
const open = of('open');
/** Capacity is measured by the closed loop, and by the fixed list of k6. */
const capacity =
  (read: Read): Read =>
  (result) =>
    result.load === 'closed' || (result.load === 'k6' && result.rush === null) ? read(result) : null;

const quotient = (part: number, whole: number | null | undefined) => (whole ? part / whole : null);
const ofPgbench: Read = (r) => quotient(r.acceptedPerSecond, r.reference?.perSecond);
const busyShare: Read = ({ busy, unknown, rush }) => rush && (busy + unknown + rush.dropped) / rush.scheduled;
const generatorShare: Read = ({ generator: { cpuS, systemCpuS } }) =>
  cpuS === null || systemCpuS === null ? null : cpuS / (cpuS + systemCpuS);

const help: Readonly<Record<string, string>> = {
  acceptedPerSecond: 'Accepted attempts a second in steady state: the stock lasts, every customer is new.',
  p50Ms: 'Median latency of accepted attempts in steady state.',
  p99Ms: '99th percentile of the latency of accepted attempts in steady state.',
  ofPgbench: 'accepted/s ÷ pgbench/s, same round.',
  pgbenchPerSecond: 'Orders a second of pgbench with the strategy’s statements on as many connections.',
  sellOutS: 'From the first attempt of the sell-out to the last accepted one.',
  sendingS:
    'How long the generator sends the customers of the sell-out: a strategy that is fast enough is sold out before.',
  sellOutP50Ms: 'Median latency of accepted attempts while selling out, from the intended start of each.',
  sellOutP99Ms: '99th percentile of the same.',
  refusedP99Ms: '99th percentile of the latency of “sold out” answers.',
  firstComeShare: 'Share of the units that went to the first customers to come.',
  busyShare: 'Attempts of the sell-out that were answered busy, not at all, or never sent.',
  serviceCpu: 'CPU seconds of the service for 10,000 answered attempts in steady state.',
  redisCpu: 'CPU seconds of Redis for 10,000 answered attempts.',
  postgresCpu: 'CPU seconds of Postgres for 10,000 answered attempts.',
  serviceUtilization: 'Share of one processor that the service used.',
  redisCommands: 'Commands of Redis for an attempt, those inside scripts included.',
  redisRoundTrips: 'How often a lone attempt waits for Redis.',
  postgresRoundTrips: 'How often a lone attempt waits for Postgres.',
  generatorShare:
    'The generator’s share of all CPU time in steady state; from half on, a figure does not count.',
};

const rows: readonly MetricRow<StrategyResult>[] = [
  ['acceptedPerSecond', 'accepted/s', '/s', '+', capacity((r) => r.acceptedPerSecond)],
  ['p50Ms', 'p50', 'ms', '-', capacity((r) => r.acceptedLatencyMs?.p50)],
  ['p99Ms', 'p99', 'ms', '-', capacity((r) => r.acceptedLatencyMs?.p99)],
  ['ofPgbench', '÷ pgbench', '×', '+', closed(ofPgbench)],
  ['pgbenchPerSecond', 'pgbench/s', '/s', '', closed((r) => r.reference?.perSecond)],
  ['sellOutS', 'sold out after', 's', '-', open((r) => r.timeToSellOutMs && r.timeToSellOutMs / 1_000)],
  ['sendingS', 'sending for', 's', '', open(({ rush }) => rush && rush.scheduled / rush.perSecond)],
  ['sellOutP50Ms', 'sell-out p50', 'ms', '-', open((r) => r.acceptedLatencyMs?.p50)],
  ['sellOutP99Ms', 'sell-out p99', 'ms', '-', open((r) => r.acceptedLatencyMs?.p99)],
  ['refusedP99Ms', 'sold-out answer p99', 'ms', '-', open((r) => r.refusedLatencyMs?.p99)],
  ['firstComeShare', 'first come', '%', '+', open((r) => r.firstComeShare)],
  ['busyShare', 'busy', '%', '-', open(busyShare)],
  ['serviceCpu', 'service CPU s/10k', 's', '-', closed(({ cost }) => cost?.cpu.service)],
  ['redisCpu', 'Redis CPU s/10k', 's', '-', closed(({ cost }) => cost?.cpu.redis)],
  ['postgresCpu', 'Postgres CPU s/10k', 's', '-', closed(({ cost }) => cost?.cpu.postgres)],
  ['serviceUtilization', 'service busy', '%', '', closed(({ cost }) => cost?.serviceUtilization)],
  ['redisCommands', 'Redis commands', '', '-', closed(({ cost }) => cost?.redisCommands)],
  ['redisRoundTrips', 'Redis round trips', '', '-', closed((r) => r.roundTrips?.redis)],
  ['postgresRoundTrips', 'Postgres round trips', '', '-', closed((r) => r.roundTrips?.postgres)],
  ['generatorShare', 'generator CPU', '%', '', closed(generatorShare)],
];
export const metrics = metricsOf(rows, help);

const checkTexts: Readonly<Record<CheckName, readonly [title: string, help: string]>> = {
  oversold: ['oversold', 'Active orders beyond the stock.'],
  undersold: ['undersold', 'Units left free although an attempt was answered “sold out”.'],
  duplicates: ['duplicates', 'Active orders beyond one for a customer.'],
  lost: ['lost', 'Acknowledged orders that Postgres does not have.'],
  phantom: ['phantom', 'Orders of customers whose attempts were all refused.'],
  drift: ['drift', 'Counters that disagree with the orders.'],
  pointsMismatch: ['points', 'Orders whose points are wrong.'],
  returnsMismatch: ['returns', 'Units of closed orders that did not return.'],
  paymentsMismatch: ['payments', 'Payments without exactly one effect.'],
  tasksMismatch: ['tasks', 'Tasks lost or done twice.'],
  answersMismatch: ['answers', 'Answers that the orders, or other answers, contradict.'],
};

export const checks = Object.entries(checkTexts).map(([key, [title, text]]): CheckInfo<StrategyResult> => {
  return { key, title, help: text, read: ({ audit }) => audit[key as CheckName] };
});
