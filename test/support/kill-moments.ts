/**
 * The moments at which the service is killed: just before or just after one of its requests to a store, or a task's
 * delivery. A request is known by what it says; the seed chooses which one it is.
 */
import { createHash } from 'node:crypto';
import { scriptText } from '../../src/store/redis/script.ts';

export interface Moment {
  readonly strategy: string;
  readonly step: string;
  /** Of the requests of this step, counted from when the sale is there. */
  readonly nth: number;
  /** Before: the request never arrives. After: it arrives, and its answer is lost. */
  readonly side: 'before' | 'after';
}

/** What a request that belongs to a step says: all of these. */
type Marks = readonly string[];

const POSTGRES: Record<string, Marks> = {
  'commit-orders': ['commit-orders'],
  // One statement closes orders; what they become is a parameter, with its length before it.
  cancel: ['close-orders', '\0\0\0\x09cancelled'],
  expire: ['close-orders', '\0\0\0\x07expired'],
  due: ['due-orders'],
  'moves-pick': ['outbox-of-orders'],
  'moves-delete': ['DELETE FROM mirror_outbox'],
  payment: ['FROM orders WHERE id = $1 FOR UPDATE'],
  'payment-paid': [`SET status = 'paid', paid_at = clock_timestamp() WHERE`],
  'payment-task': ['INSERT INTO tasks'],
  'payment-revive': ['order-revival'],
  'payment-refund': [`SET status = 'refund-due'`],
  'payment-notification': ['INSERT INTO payment_notifications'],
  'task-pick': [`SET state = 'queued'`],
  'task-claim': [`SET state = 'processing'`],
  'task-done': [`SET state = 'done'`],
  'lock-sale': ['lock-sale'],
  'find-active': ['find-active'],
  'insert-order': ['insert-order'],
  'count-sold': ['count-sold'],
  'place-batch': ['place-batch'],
  'sell-if-free': ['sell-if-free'],
  'read-sale-and-orders': ['read-sale-and-orders'],
};

/** The end of a transaction, by the step that came before it. */
const COMMITS: Record<string, string> = {
  'moves-delete': 'moves-commit',
  'payment-notification': 'payment-commit',
  'count-sold': 'purchase-commit',
};

const SCRIPTS = {
  'sale/reserve': 'reserve',
  'sale/fenced-deduct': 'deduct',
  'sale/acknowledge': 'settle',
  'sale/apply-change': 'move',
  'lock/reentrant-acquire': 'lock',
  'lock/reentrant-release': 'unlock',
} as const;

/** A script is sent once as it is, and then by its hash. */
const REDIS: readonly (readonly [step: string, marks: Marks, orMarks?: Marks])[] = [
  ...Object.entries(SCRIPTS).map(([file, step]) => {
    const lua = scriptText(file);
    return [step, [createHash('sha1').update(lua).digest('hex')], [lua.slice(0, lua.indexOf('\n'))]] as const;
  }),
  ['task-enqueue', ['\r\nxadd\r\n', '{tasks}']],
  ['task-read', ['\r\nxreadgroup\r\n']],
];

const says = (request: string, marks: Marks | undefined) =>
  marks?.every((mark) => request.includes(mark)) === true;

/** @returns tells which steps a request to a store takes; of one connection in their order */
export function stepsOf(): (request: string, connection: object) => string[] {
  const latest = new WeakMap<object, string>();
  return (request, connection) => {
    const steps = Object.keys(POSTGRES).filter((step) => says(request, POSTGRES[step]));
    for (const [step, marks, orMarks] of REDIS)
      if (says(request, marks) || says(request, orMarks)) steps.push(step);
    const commit = request.includes('COMMIT') ? COMMITS[latest.get(connection) ?? ''] : undefined;
    if (commit !== undefined) steps.push(commit);
    const last = steps.at(-1);
    if (last !== undefined) latest.set(connection, last);
    return steps;
  };
}

/** The steps of each strategy at which it is killed, on both sides: 100 moments in all. */
const STRANDS: Record<string, readonly string[]> = {
  lua: [
    ...['reserve', 'commit-orders', 'settle', 'cancel', 'expire', 'moves-pick', 'move', 'moves-delete'],
    ...['moves-commit', 'payment-revive', 'payment-commit', 'task-read', 'start'],
  ],
  'segmented-lock': [
    ...['lock', 'deduct', 'unlock', 'commit-orders', 'settle', 'cancel', 'expire', 'moves-pick', 'move'],
    ...['moves-delete', 'moves-commit', 'payment-commit', 'start'],
  ],
  'for-update': [
    ...['lock-sale', 'find-active', 'insert-order', 'count-sold', 'purchase-commit', 'cancel', 'expire'],
    ...['payment-commit'],
  ],
  'group-commit': [
    ...[
      'place-batch',
      'read-sale-and-orders',
      'task-pick',
      'task-enqueue',
      'task-claim',
      'task-effect',
      'task-done',
    ],
    ...['start'],
  ],
  'conditional-update': [
    ...['sell-if-free', 'due', 'payment', 'payment-paid', 'payment-task', 'payment-notification'],
    ...['payment-revive', 'payment-refund'],
  ],
};

/** How often a step is taken at least while one sale runs, where that is not twice. */
const OFTEN: Record<string, number> = {
  ...{ reserve: 20, deduct: 12, lock: 20, unlock: 20, 'commit-orders': 6, settle: 6, 'sell-if-free': 15 },
  ...{ 'lock-sale': 20, 'find-active': 15, 'insert-order': 12, 'count-sold': 12, 'purchase-commit': 12 },
  ...{
    'place-batch': 6,
    'read-sale-and-orders': 4,
    cancel: 4,
    'moves-pick': 4,
    move: 4,
    'moves-delete': 4,
    'moves-commit': 4,
  },
  ...{ payment: 8, 'payment-paid': 4, 'payment-task': 8, 'payment-notification': 6, 'payment-commit': 6 },
  ...{ 'task-claim': 3, 'task-effect': 6, 'task-done': 6, 'task-enqueue': 3, start: 12 },
};

const MOMENTS = Object.entries(STRANDS).flatMap(([strategy, steps]) =>
  (['before', 'after'] as const).flatMap((side) => steps.map((step) => ({ strategy, step, side }))),
);

/** Seeds from 0 on, 100 of them, are all moments once; later ones are the same with other numbers in them. */
export const SEEDS = MOMENTS.length;

export function momentOf(seed: number): Moment {
  const { strategy, step, side } = MOMENTS[seed % SEEDS]!;
  return { strategy, step, side, nth: 1 + Math.floor(randomOf(seed)() * (OFTEN[step] ?? 2)) };
}

/** Numbers from 0 up to 1 that depend on the seed alone (mulberry32). */
export function randomOf(seed: number): () => number {
  let state = Math.imul(seed + 1, 0x9e37_79b9);
  return () => {
    state = (state + 0x6d2b_79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
