/** What is measured against the platform, and which ratios have a goal (section 10 of the design). */
import type { CellBase, Goal } from '../../kit/suite.ts';

/** The service, and the answer that every attempt must have. */
export interface ServiceSubject {
  readonly kind: 'service';
  readonly strategy: string;
  readonly confirm: 'durable' | 'accepted';
  readonly answer: 'accepted' | 'sold-out';
  /** Sales, and how many of them the measured attempts are spread over. The warm-up is spread over all. */
  readonly sales: number;
  readonly targets: number;
  /** Earlier buyers of each sale. */
  readonly buyers: number;
}

export type Subject = { readonly kind: 'bare' } | ServiceSubject | { readonly kind: 'pgbench' };

export interface LimitCell extends CellBase {
  readonly subject: Subject;
}

const cell = (name: string, summary: string, subject: Subject): LimitCell => ({
  name,
  summary,
  subject,
  unsafe: false,
  control: false,
});

const service = (strategy: string, more: Partial<ServiceSubject> = {}): ServiceSubject => ({
  kind: 'service',
  strategy,
  confirm: 'durable',
  answer: 'accepted',
  sales: 1,
  targets: 1,
  buyers: 0,
  ...more,
});

/** A strategy that has no goal. */
export const strategyCell = (strategy: string): LimitCell =>
  cell(strategy, `\`${strategy}\`, every attempt a sale, 201 after the commit`, service(strategy));

export const limitCells: readonly LimitCell[] = [
  cell('bare', 'a node:http server that reads the same POST to its end and answers with a fixed reply', {
    kind: 'bare',
  }),
  strategyCell('group-commit'),
  strategyCell('lua'),
  cell(
    'lua-accepted',
    '`lua`, every attempt a sale, 202 before the commit (`CONFIRM=accepted`)',
    service('lua', { confirm: 'accepted' }),
  ),
  cell('sold-out', '`lua`, a sale whose one unit is sold: 409', service('lua', { answer: 'sold-out' })),
  cell(
    'group-commit-100',
    '`group-commit` on 100 sales in turn',
    service('group-commit', { sales: 100, targets: 100 }),
  ),
  strategyCell('for-update'),
  cell('pgbench', 'the statements of `for-update`, prepared, on as many connections as the service has', {
    kind: 'pgbench',
  }),
];

const bounded = (atLeast: number | null, atMost: number | null) => ({ atLeast, atMost });
const ratio = (of: string, over: string, atLeast: number, what: string, connections?: number): Goal => ({
  metric: 'perSecond',
  of,
  over,
  ...bounded(atLeast, null),
  what,
  ...(connections !== undefined && { at: { connections } }),
});
const ladder = [64, 128, 256, 512] as const;
const shares: Readonly<Record<string, readonly number[]>> = {
  'group-commit': [0.4, 0.45, 0.5, 0.55],
  lua: [0.32, 0.36, 0.45, 0.52],
};
const utilizations = [0.85, 0.9, 0.9, 0.9];

export const limitGoals: readonly Goal[] = [
  ...Object.entries(shares).flatMap(([of, values]) =>
    ladder.map((connections, n) =>
      ratio(
        of,
        'bare',
        values[n]!,
        `committed sales at ${connections} connections, as a share of what node:http answers`,
        connections,
      ),
    ),
  ),
  ...Object.keys(shares).flatMap((of) =>
    ladder.map(
      (connections, n): Goal => ({
        metric: 'utilization',
        of,
        over: null,
        ...bounded(utilizations[n]!, null),
        what: `the service's processor is busy at ${connections} connections`,
        at: { connections },
      }),
    ),
  ),
  ratio('lua-accepted', 'bare', 0.55, 'sales that Redis decided, as a share of what node:http answers'),
  ratio('sold-out', 'bare', 0.95, 'sold-out answers, as a share of what node:http answers'),
  {
    metric: 'serviceCpuUs',
    of: 'group-commit',
    over: 'bare',
    ...bounded(null, 1.8),
    what: 'CPU of the service for an attempt, as a multiple of that of node:http',
  },
  ratio('group-commit-100', 'group-commit', 0.85, 'speed on 100 sales, as a share of that on one'),
  ratio('group-commit', 'for-update', 30, 'orders of one hot sale, in batches against one by one'),
  ratio('for-update', 'pgbench', 0.8, 'the service, against pgbench with the same statements', 64),
];

const flatCell = (name: string, more: Partial<ServiceSubject>, summary: string): LimitCell =>
  cell(name, summary, service('lua', more));

/** Whether the cost of an attempt stays flat. */
export const flatCells: readonly LimitCell[] = [
  flatCell('sales-1', {}, '`lua`, 201 after the commit, one sale'),
  flatCell('sales-1000', { sales: 1_000 }, 'the same on one of 1,000 sales'),
  flatCell(
    'sales-1000-spread',
    { sales: 1_000, targets: 1_000 },
    'the same spread evenly over 1,000 sales: attempts share nothing',
  ),
  flatCell('buyers-1000', { buyers: 1_000 }, 'the same on one sale with 1,000 earlier buyers'),
  flatCell('buyers-1000000', { buyers: 1_000_000 }, 'the same on one sale with 1,000,000 earlier buyers'),
];

const flat = (of: string, over: string, what: string): Goal => ({
  ...ratio(of, over, 0.85, what),
  atMost: 1.15,
});
export const flatGoals: readonly Goal[] = [
  flat('sales-1000', 'sales-1', 'speed with 1,000 sales, as a share of that with one'),
  flat('sales-1000-spread', 'sales-1', 'speed of attempts on 1,000 sales in turn, as a share of that on one'),
  flat('buyers-1000000', 'buyers-1000', 'speed with 1,000,000 buyers, as a share of that with 1,000'),
];
