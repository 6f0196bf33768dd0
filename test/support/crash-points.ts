/**
 * A hundred moments at which a service crashes: just before or just after one of its requests to a store, or a task's
 * delivery. A request is recognized by its text; the seed chooses the moment.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { seededRandom } from '../../lab/kit/random.ts';
import { scriptText } from '../../src/locks/adapters/scripts.ts';
import type { Service } from './killable-service.ts';

export interface Moment {
  readonly strategy: string;
  readonly step: string;
  /** Which request of this step, counted once the sale exists. */
  readonly nth: number;
  /** Before: the request never arrives. After: it arrives, and its answer is lost. */
  readonly side: 'before' | 'after';
}

/** A request of the step contains all of these. */
const POSTGRES: Record<string, readonly string[]> = {
  'commit-orders': ['commit-orders'],
  // One statement closes orders; what they become is a parameter, with its length before it.
  cancel: ['close-orders', '\0\0\0\x09cancelled'],
  expire: ['close-orders', '\0\0\0\x07expired'],
  due: ['due-orders'],
  'outbox-pick': ['outbox-of-orders'],
  'outbox-delete': ['DELETE FROM mirror_outbox'],
  payment: ['FROM orders WHERE id = $1 FOR UPDATE'],
  'payment-paid': [`SET status = 'paid', paid_at = clock_timestamp() WHERE`],
  'payment-task': ['INSERT INTO tasks'],
  'payment-revive': ['order-revival'],
  'payment-refund': [`SET status = 'refund-due'`],
  'payment-notification': ['INSERT INTO payment_notifications'],
  'task-claim': [`SET state = 'processing'`],
  'task-reclaim': ['SET state = CASE'],
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
  'outbox-delete': 'outbox-commit',
  'payment-notification': 'payment-commit',
  'count-sold': 'purchase-commit',
};

const SCRIPTS = {
  'sale/reserve': 'reserve',
  'sale/reserve-many': 'reserve',
  'sale/fenced-deduct': 'deduct',
  'sale/acknowledge': 'acknowledge',
  'sale/apply-change': 'apply-change',
  'lock/reentrant-acquire': 'lock',
  'lock/reentrant-release': 'unlock',
} as const;

/** A script is sent once as it is, and then by its hash. */
const REDIS = Object.entries(SCRIPTS).map(([file, step]) => {
  const lua = scriptText(file);
  return { step, marks: [createHash('sha1').update(lua).digest('hex'), lua.slice(0, lua.indexOf('\n'))] };
});

/** @returns a function that names the steps of a request; it must see all requests of a connection, in order */
function stepsOf(): (request: string, connection: object) => string[] {
  const latest = new WeakMap<object, string>();
  let areTasksDue = false; // a claim that finds no task is left out
  return (request, connection) => {
    const steps = Object.keys(POSTGRES).filter(
      (step) =>
        POSTGRES[step]!.every((mark) => request.includes(mark)) && (step !== 'task-claim' || areTasksDue),
    );
    if (steps.includes('task-claim')) areTasksDue = false;
    for (const { step, marks } of REDIS) if (marks.some((mark) => request.includes(mark))) steps.push(step);
    const commit = request.includes('COMMIT') ? COMMITS[latest.get(connection) ?? ''] : undefined;
    if (commit !== undefined) steps.push(commit);
    if (commit === 'payment-commit') areTasksDue = true;
    const last = steps.at(-1);
    if (last !== undefined) latest.set(connection, last);
    return steps;
  };
}

/** The steps of each strategy at which it crashes, on both sides: 100 moments in all. */
const STEPS: Record<string, string> = {
  lua: `reserve commit-orders acknowledge cancel expire outbox-pick apply-change outbox-delete outbox-commit
    payment-revive payment-commit task-claim start`,
  'segmented-lock': `lock deduct unlock commit-orders acknowledge cancel expire outbox-pick apply-change outbox-delete
    outbox-commit payment-commit start`,
  'for-update': 'lock-sale find-active insert-order count-sold purchase-commit cancel expire payment-commit',
  'group-commit':
    'place-batch read-sale-and-orders task-claim task-effect task-done task-reclaim payment-commit start',
  'conditional-update': `sell-if-free due payment payment-paid payment-task payment-notification payment-revive
    payment-refund`,
};

/** Taken once in a sale, perhaps; the others at least twice. */
const RARE = ['expire', 'task-claim', 'task-reclaim'];

const MOMENTS = Object.entries(STEPS).flatMap(([strategy, steps]) =>
  (['before', 'after'] as const).flatMap((side) =>
    steps.split(/\s+/).map((step) => ({ strategy, step, side })),
  ),
);

/** Seeds 0 to 99 give each moment once; later seeds repeat them with other numbers. */
export const SEEDS = MOMENTS.length;

export function momentOf(seed: number): Moment {
  const { strategy, step, side } = MOMENTS[seed % SEEDS]!;
  return { strategy, step, side, nth: RARE.includes(step) || seededRandom(seed)() < 0.5 ? 1 : 2 };
}

interface Armed {
  readonly moment: Pick<Moment, 'step' | 'nth' | 'side'>;
  taken: number;
  hit(): void;
}

/** Crashes a service at chosen moments: it watches the service's requests, and receives its tasks. */
export class Crasher implements AsyncDisposable {
  readonly deliveries: { readonly key: string; readonly run: number }[] = [];
  #armed: Armed | null = null;
  #runs = 0;
  readonly #service: Service;
  readonly #tasks: Server;

  static async open(service: Service): Promise<Crasher> {
    const crasher = new Crasher(service);
    crasher.#tasks.listen(0, '127.0.0.1');
    await once(crasher.#tasks, 'listening');
    return crasher;
  }

  private constructor(service: Service) {
    this.#service = service;
    this.#tasks = createServer((req, res) => this.#deliver(req, res));
    const recognize = stepsOf();
    for (const link of Object.values(service.links)) {
      link.watch = (request, connection) => {
        const steps = recognize(request, connection);
        if (service.isStarting) steps.push('start');
        const armed = this.#take(steps);
        if (armed === null) return 'pass';
        if (armed.moment.side === 'after') return () => this.#strike(armed);
        this.#strike(armed);
        return 'drop';
      };
    }
  }

  /** Starts the service with a webhook that names its run. */
  start(): Promise<void> {
    const { port } = this.#tasks.address() as AddressInfo;
    return this.#service.start({ TASK_WEBHOOK_URL: `http://127.0.0.1:${port}/${++this.#runs}` });
  }

  /** Crashes the service at a moment. @returns a promise that resolves when it was hit */
  arm(moment: Armed['moment']): Promise<void> {
    return new Promise((hit) => {
      this.#armed = { moment, taken: 0, hit };
    });
  }

  disarm(): void {
    this.#armed = null;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#tasks.closeAllConnections();
    this.#tasks.close();
  }

  #take(steps: readonly string[]): Armed | null {
    const armed = this.#armed;
    if (armed === null || !steps.includes(armed.moment.step) || ++armed.taken < armed.moment.nth) return null;
    this.#armed = null;
    return armed;
  }

  #strike(armed: Armed): void {
    this.#service.crash();
    armed.hit();
  }

  async #deliver(req: IncomingMessage, res: ServerResponse): Promise<void> {
    req.resume();
    await once(req, 'end').catch(() => {});
    this.deliveries.push({ key: String(req.headers['idempotency-key']), run: Number(req.url?.slice(1)) });
    const armed = this.#take(['task-effect']);
    if (armed?.moment.side === 'before') this.#strike(armed);
    await sleep(Math.random() * 20);
    res.end();
    if (armed?.moment.side === 'after') res.on('finish', () => this.#strike(armed));
  }
}
