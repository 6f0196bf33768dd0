/** The cells that are measured against the platform, and their ratios. */
import { bars, type Chart, curves, stackedBars, sweep } from '../../kit/charts.ts';
import type { CellBase, Ratio } from '../../kit/suite.ts';
import type { Streams } from './streams.ts';

export interface LimitCell extends CellBase {
  readonly kind: 'service' | 'bare' | 'pgbench';
  /** From here on: fields of a `service`. */
  readonly strategy: string;
  readonly confirm: 'durable' | 'accepted';
  /** AUTH=jwt with a ticket in each attempt; otherwise AUTH=none. */
  readonly tickets: boolean;
  /** The answer that every attempt must have. */
  readonly answer: 'accepted' | 'sold-out' | 'any';
  /** Sales, and how many of them the measured attempts are spread over. The warm-up is spread over all. */
  readonly sales: number;
  readonly targets: number;
  /** Earlier buyers of each sale. */
  readonly buyers: number;
  /** Units of each sale, beyond those of earlier buyers. */
  readonly stock: number;
  /** Masters of Redis: one is a plain server, several a cluster. */
  readonly masters: number;
  /** Postgres over which the service deals the sales, without Redis; null: one, with Redis. */
  readonly cells: number | null;
  /** Whether commits wait for a standby of the cell's own Postgres; null: the run's Postgres. */
  readonly standby: 'asynchronous' | 'synchronous' | null;
  /** Customers who repeat their attempts; null: each attempt is another customer's. */
  readonly customers: number | null;
  /** Processes of the service, which share the connections. */
  readonly processes: number;
  /** Clients that listen to events during the load; null: none. */
  readonly streams: Streams | null;
}

const usual: Omit<LimitCell, 'name' | 'summary'> = {
  ...{ kind: 'service', strategy: 'lua', confirm: 'durable', tickets: false, answer: 'accepted' },
  ...{ sales: 1, targets: 1, buyers: 0, stock: 1_000_000_000, unsafe: false, control: false },
  ...{ masters: 1, cells: null, standby: null, customers: null, processes: 1, streams: null },
};
const cell = (name: string, summary: string, more: Partial<LimitCell> = {}): LimitCell => {
  return { ...usual, name, summary, ...more };
};
/** A strategy with the usual settings. */
export const strategyCell = (strategy: string): LimitCell =>
  cell(strategy, `\`${strategy}\`, every attempt a sale, 201 after the commit`, { strategy });

const posts = 'a node:http server that reads the same POST to its end and answers with a fixed reply';
const early = '`lua`, every attempt a sale, 202 before the commit (`CONFIRM=accepted`)';
const hundred = { strategy: 'group-commit', sales: 100, targets: 100 };
const statements = 'the statements of `for-update`, prepared, on as many connections as the service has';
/** Strategies that decide in Postgres, and refuse from memory: in batches, by one statement, under a row lock, by rows. */
const REFUSING = ['group-commit', 'conditional-update', 'for-update', 'skip-locked'];
const limitCells: readonly LimitCell[] = [
  cell('bare', posts, { kind: 'bare' }),
  strategyCell('group-commit'),
  strategyCell('lua'),
  cell('lua-tickets', '`lua`, the same with `AUTH=jwt` and a ticket in each attempt', { tickets: true }),
  cell('lua-console', '`lua`, while 50 operators watch the console', {
    streams: { path: '/console/events', count: 50 },
  }),
  cell('lua-watched', '`lua`, while 2,000 customers watch what is left of the sale', {
    streams: { path: '/sales/1/events', count: 2_000 },
  }),
  cell('lua-accepted', early, { confirm: 'accepted' }),
  cell('sold-out', '`lua`, a sale whose one unit is sold: 409', { answer: 'sold-out', stock: 1 }),
  ...REFUSING.map((strategy) =>
    cell(`sold-out-${strategy}`, `the same with \`${strategy}\``, { strategy, answer: 'sold-out', stock: 1 }),
  ),
  cell('repeats', '`group-commit`, repeats of 1,000 customers: 200; an asynchronous standby', {
    ...{ strategy: 'group-commit', customers: 1_000, standby: 'asynchronous' },
  }),
  cell('repeats-standby', 'the same with a synchronous standby: a repeat waits for a commit', {
    ...{ strategy: 'group-commit', customers: 1_000, standby: 'synchronous' },
  }),
  cell('group-commit-100', '`group-commit` on 100 sales in turn', hundred),
  strategyCell('for-update'),
  cell('pgbench', statements, { kind: 'pgbench' }),
];

const ratio = (of: string, over: string, what: string, metric = rate, connections?: number): Ratio => ({
  ...{ metric, of, over, what },
  ...(connections !== undefined && { at: { connections } }),
});
const rate = 'perSecond';
const cpu = 'serviceCpuUs';
const cpuText = 'CPU of the service for an attempt';

const steps = [64, 128, 256, 512] as const;
const toBare = ['group-commit', 'lua'].flatMap((of) =>
  steps.map((connections) => ratio(of, 'bare', 'committed sales against fixed answers', rate, connections)),
);
const limitRatios: readonly Ratio[] = [
  ...toBare,
  ratio('lua-tickets', 'lua', 'purchases with tickets, against trusted callers'),
  ratio('lua-tickets', 'lua', 'the same by CPU of the service for an attempt', cpu),
  ratio('lua-console', 'lua', 'purchases beside 50 consoles, against none'),
  ratio('lua-accepted', 'bare', 'sales that Redis decided, against fixed answers'),
  ratio('sold-out', 'bare', 'sold-out answers, against fixed answers'),
  ...REFUSING.map((strategy) =>
    ratio(
      `sold-out-${strategy}`,
      'sold-out',
      `sold-out answers of \`${strategy}\`, against those of \`lua\``,
    ),
  ),
  ratio('group-commit', 'bare', cpuText, cpu),
  ratio('lua', 'bare', cpuText, cpu),
  ratio('group-commit-100', 'group-commit', 'speed on 100 sales, against one'),
  ratio('group-commit', 'for-update', 'orders of one hot sale, in batches against one by one'),
  ratio('for-update', 'pgbench', 'the service, against pgbench with the same statements', rate, 64),
];

/** Whether the cost of an attempt stays flat. */
const spread = { sales: 1_000, targets: 1_000 };
const flatCells: readonly LimitCell[] = [
  cell('sales-1', '`lua`, 201 after the commit, one sale'),
  cell('sales-1000', 'the same on one of 1,000 sales', { sales: 1_000 }),
  cell('sales-1000-spread', 'the same on 1,000 sales in turn: attempts share nothing', spread),
  cell('buyers-1000', 'the same on one sale with 1,000 earlier buyers', { buyers: 1_000 }),
  cell('buyers-1000000', 'the same on one sale with 1,000,000 earlier buyers', { buyers: 1_000_000 }),
];
const flatRatios: readonly Ratio[] = [
  ratio('sales-1000', 'sales-1', 'speed with 1,000 sales, against one'),
  ratio('sales-1000-spread', 'sales-1', 'speed on 1,000 sales in turn, against one'),
  ratio('buyers-1000000', 'buyers-1000', 'speed with 1,000,000 buyers, against 1,000'),
];

const million = { answer: 'any', stock: 1_000_000 } as const;
const memoryCells: readonly LimitCell[] = [
  cell('mixed', '`lua`: a million attempts is sold, the others are sold out', million),
  cell('accepted', early, { answer: 'any', confirm: 'accepted' }),
];
/** What an attempt costs on one server and on a cluster: the basis for estimates of other machines. */
const clusterCells = [1, 3].flatMap((masters) =>
  [1, 2].flatMap((processes) =>
    [1, 100, 1_000].map((sales) =>
      cell(
        `redis-${masters}-service-${processes}-sales-${sales}`,
        `\`lua\`, ${[
          masters === 1 ? 'one Redis' : `a cluster of ${masters} masters`,
          processes === 1 ? 'one process' : `${processes} processes`,
          sales === 1 ? 'one sale' : `${sales} sales in turn`,
        ].join(', ')}`,
        { masters, processes, sales, targets: sales },
      ),
    ),
  ),
);
const scaleCells: readonly LimitCell[] = [
  ...clusterCells,
  cell('redis-1-service-4-sales-1', '`lua`, one Redis, 4 processes, one sale', { processes: 4 }),
  ...[1, 2, 4].map((processes) =>
    cell(`group-commit-service-${processes}`, `\`group-commit\`, one sale, processes: ${processes}`, {
      strategy: 'group-commit',
      processes,
    }),
  ),
  ...[1, 2].map((cells) =>
    cell(`group-commit-cells-${cells}-sales-100`, `\`group-commit\`, 100 sales in turn, Postgres: ${cells}`, {
      ...{ ...hundred, cells },
    }),
  ),
];

/** What one suite measures. */
export interface Kind {
  /** Titles: in the list of suites, over the report. */
  readonly title: string;
  readonly report: string;
  readonly cells: readonly LimitCell[];
  readonly ratios: readonly Ratio[];
  readonly connections: readonly number[];
  /** How long each step takes. */
  readonly seconds: number;
  readonly rounds: number;
  readonly lead: 'perSecond' | 'growth';
  /** How servers and load are pinned, unless an option says otherwise. */
  readonly pin: 'auto' | 'none';
  readonly charts: readonly Chart[];
}

const usualKind = { connections: [512], seconds: 4, rounds: 5, lead: 'perSecond', pin: 'auto' } as const;
export const kinds: Readonly<Record<'limits' | 'flat' | 'memory' | 'scale', Kind>> = {
  limits: {
    ...{ ...usualKind, cells: limitCells, ratios: limitRatios, connections: steps },
    title: 'Measures the service against the limits of the platform under it.',
    report: 'Stampede against the limits of its platform',
    charts: [
      sweep('Answers by connections', 'perSecond', 'connections'),
      bars('CPU of the server for an answer', 'serviceCpuUs'),
    ],
  },
  flat: {
    ...{ ...usualKind, cells: flatCells, ratios: flatRatios },
    title: 'Measures whether the cost of an attempt stays flat with many sales and many buyers.',
    report: 'Whether the cost of an attempt stays flat',
    charts: [bars('Answers a second', 'perSecond')],
  },
  memory: {
    ...{ ...usualKind, cells: memoryCells, ratios: [], seconds: 240, rounds: 1, lead: 'growth' },
    title: 'Measures the memory of one service under millions of attempts.',
    report: 'Memory of one service',
    charts: [curves('memory')],
  },
  scale: {
    ...{ ...usualKind, cells: scaleCells, ratios: [], connections: [1, 64, 512], rounds: 3, pin: 'none' },
    title:
      'Measures what an attempt costs with one Redis and with a cluster, with several processes, and with two Postgres.',
    report: 'What an attempt costs, by servers and processes',
    charts: [
      stackedBars('CPU of an attempt by server', 'serviceCpuUs', 'redisCpuUs', 'postgresCpuUs'),
      sweep('Answers by connections', 'perSecond', 'connections'),
    ],
  },
};
