/** What is measured, and which quotients of it have a goal. */
export type Subject =
  | { readonly kind: 'reply'; readonly server: 'bare' | 'express' }
  | ServiceSubject
  | { readonly kind: 'script'; readonly batched: boolean }
  | { readonly kind: 'statements' };

/** The service, and the answer that every attempt should get. */
export interface ServiceSubject {
  readonly kind: 'service';
  readonly strategy: string;
  readonly confirm: 'durable' | 'accepted';
  readonly answer: 'accepted' | 'sold-out';
  /** Processes that share the port. */
  readonly workers: number;
  /** Open sales. The warm-up is spread over all of them. */
  readonly sales: number;
  /** Of these, the first ones, over which the attempts that are measured are spread. */
  readonly targets: number;
  /** Buyers that each of them has from before. */
  readonly buyers: number;
}

export interface Cell {
  readonly name: string;
  readonly subject: Subject;
  /** What its rate is a rate of. */
  readonly counts: 'answers' | 'deductions' | 'orders';
  readonly summary: string;
}

/** A quotient of two cells of the same round. */
export interface Goal {
  /** The cell that is divided. */
  readonly of: string;
  /** The cell that it is divided by. */
  readonly by: string;
  readonly what: string;
  readonly atLeast: number;
  /** Null: there is no such thing as too much. */
  readonly atMost: number | null;
}

const service = (strategy: string, more: Partial<ServiceSubject> = {}): ServiceSubject => ({
  kind: 'service',
  strategy,
  confirm: 'durable',
  answer: 'accepted',
  workers: 1,
  sales: 1,
  targets: 1,
  buyers: 0,
  ...more,
});

/** What a strategy is measured as that has no goal. */
export const strategyCell = (strategy: string): Cell => ({
  name: strategy,
  subject: service(strategy),
  counts: 'answers',
  summary: `\`${strategy}\`, every attempt a sale, 201 after the commit`,
});

/** The cells of `--only ratios`. */
export const ratioCells: readonly Cell[] = [
  {
    name: 'bare',
    subject: { kind: 'reply', server: 'bare' },
    counts: 'answers',
    summary: 'a node:http server that reads the same POST to its end and answers with a fixed reply',
  },
  {
    name: 'express',
    subject: { kind: 'reply', server: 'express' },
    counts: 'answers',
    summary: 'Express and express.json() in front of a handler that only replies',
  },
  {
    name: 'redis-script',
    subject: { kind: 'script', batched: false },
    counts: 'deductions',
    summary: 'lua/sale/reserve.lua, one call for each deduction, pipelined',
  },
  {
    name: 'redis-batched',
    subject: { kind: 'script', batched: true },
    counts: 'deductions',
    summary: 'lua/sale/reserve-many.lua, 256 deductions for each call, 2 calls under way, from ioredis',
  },
  {
    name: 'pgbench',
    subject: { kind: 'statements' },
    counts: 'orders',
    summary: 'the statements of `for-update`, prepared, on as many connections as the service has',
  },
  {
    ...strategyCell('lua'),
    name: 'lua-durable',
  },
  {
    name: 'lua-accepted',
    subject: service('lua', { confirm: 'accepted' }),
    counts: 'answers',
    summary: '`lua`, every attempt a sale, 202 before the commit (CONFIRM=accepted)',
  },
  {
    name: 'sold-out',
    subject: service('lua', { answer: 'sold-out' }),
    counts: 'answers',
    summary: '`lua`, a sale whose one unit is sold: 409',
  },
  {
    name: 'lua-workers-2',
    subject: service('lua', { workers: 2 }),
    counts: 'answers',
    summary: '`lua` with WORKERS=2, on all processors: 201 after the commit',
  },
  strategyCell('group-commit'),
  strategyCell('for-update'),
];

/** Section 10 of the design. */
export const ratioGoals: readonly Goal[] = [
  goal('lua-durable', 'bare', 0.4, 'a sale that is committed, as a share of what node:http answers'),
  goal('lua-accepted', 'bare', 0.7, 'a sale that Redis decided, as a share of what node:http answers'),
  goal('sold-out', 'bare', 0.9, 'a sold-out answer, as a share of what node:http answers'),
  goal('lua-durable', 'express', 3, 'a sale that is committed, against an Express handler that only replies'),
  goal('group-commit', 'for-update', 20, 'orders of one hot sale, in batches against one by one'),
  goal('for-update', 'pgbench', 0.8, 'the service, against pgbench with the same statements'),
  goal('redis-batched', 'redis-script', 1.5, 'deductions of the engine, in batches against one by one'),
];

function goal(of: string, by: string, atLeast: number, what: string, atMost: number | null = null): Goal {
  return { of, by, what, atLeast, atMost };
}

const flatCell = (name: string, more: Partial<ServiceSubject>, summary: string): Cell => ({
  name,
  subject: service('lua', more),
  counts: 'answers',
  summary,
});

/** The cells of `--only flat`. */
export const flatCells: readonly Cell[] = [
  flatCell('sales-1', {}, '`lua`, 201 after the commit, one open sale'),
  flatCell('sales-1000', { sales: 1_000 }, 'the same on one of 1,000 open sales'),
  flatCell(
    'sales-1000-spread',
    { sales: 1_000, targets: 1_000 },
    'the same spread evenly over 1,000 open sales: nothing that attempts on one sale share is shared',
  ),
  flatCell('buyers-1000', { buyers: 1_000 }, 'the same on one sale that has 1,000 buyers from before'),
  flatCell(
    'buyers-1000000',
    { buyers: 1_000_000 },
    'the same on one sale that has 1,000,000 buyers from before',
  ),
];

export const flatGoals: readonly Goal[] = [
  goal('sales-1000', 'sales-1', 0.85, 'speed with 1,000 open sales, as a share of that with one', 1.15),
  goal(
    'sales-1000-spread',
    'sales-1',
    0.85,
    'speed of attempts on 1,000 open sales in turn, as a share of that on one',
    1.15,
  ),
  goal(
    'buyers-1000000',
    'buyers-1000',
    0.85,
    'speed with 1,000,000 buyers, as a share of that with 1,000',
    1.15,
  ),
];
