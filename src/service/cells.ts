/**
 * One service over several Postgres: each cell has a complete pipeline with its background work, and this is what HTTP sees of all of them.
 *
 *   request ──of a sale──▶ the directory (store/postgres/cells.ts) ──▶ its cell
 *           ──of an order──▶ the sale that its id names ──▶ its cell; an id that an earlier version made names none: cell 0
 *           ──of a task──▶ the range of its id ──▶ its cell
 *           ──of all sales, of a customer's points, of the service──▶ every cell, and the answers are merged
 *
 * What a promise is about is whole in one cell: a sale, an order with its points and payments, a group of sales with one limit. A cell that is
 * down answers for its own sales alone, with `busy`; lists that it takes part in are `busy`, too, because they would be incomplete.
 * Administrators' awards of points go to cell 0.
 */
import type { Outcome } from '../domain/outcome.ts';
import type { Sale } from '../domain/sale.ts';
import type { HttpContext } from '../http/context.ts';
import { busy, ProblemError } from '../http/problems.ts';
import { type Reads, refuseFull } from '../http/reads.ts';
import { type Purchases, saleOf } from '../orders/purchase.ts';
import { expectedPostgresFailure } from '../store/failures/postgres.ts';
import type { CellDirectory } from '../store/postgres/cells.ts';

/** What a cell has by itself. */
export type CellParts = Pick<
  HttpContext,
  | (
      | 'purchases'
      | 'sales'
      | 'reads'
      | 'strategy'
      | 'lifecycle'
      | 'payments'
      | 'refunds'
      | 'waitlist'
      | 'groups'
    )
  | ('ledger' | 'tasks' | 'saleEvents' | 'ticketing' | 'record')
>;

/** Ids of tasks and of unmatched payments begin there in cell 1: see the migration 20261130100000_cells. */
const IDS_OF_CELL = 2 ** 44;

type Find<T> = (id: never) => Promise<T>;
type Rest<T extends readonly unknown[]> = T extends readonly [unknown, ...infer R] ? R : never;

/** The methods of these names of the part that `find` returns for their first argument. */
function routed<T extends object, N extends keyof T & string>(
  find: Find<T>,
  ...names: readonly N[]
): Pick<T, N> {
  const methods = names.map((name) => [
    name,
    async (...given: readonly unknown[]) => {
      const part = await find(given[0] as never);
      return (part[name] as (...given: readonly unknown[]) => unknown)(...given);
    },
  ]);
  return Object.fromEntries(methods) as Pick<T, N>;
}

/** Newest first. @param keyOf what grows with time */
const newest = <T>(
  pages: readonly (readonly T[])[],
  keyOf: (one: T) => number | string,
  limit: number,
): T[] =>
  pages
    .flat()
    .sort((a, b) => (keyOf(a) < keyOf(b) ? 1 : -1))
    .slice(0, limit);

const sum = (numbers: readonly number[]): number => numbers.reduce((a, b) => a + b, 0);

/** @param cells in their order, from cell 0 on */
export function overCells(cells: readonly CellParts[], directory: CellDirectory): CellParts {
  const finders = findersIn(cells, directory);
  const { first, ofSale, ofOrder, ofTask, ofPath, cellOf } = finders;
  const all = <T>(read: (cell: CellParts) => Promise<T>) => Promise.all(cells.map(read));
  const of =
    <K extends keyof CellParts>(find: Find<CellParts>, key: K): Find<CellParts[K]> =>
    async (id) =>
      (await find(id))[key];
  const setUp = async ({ id }: Pick<Sale, 'id'>) => (await ofSale(id)).strategy;
  const sales: Omit<CellParts['sales'], 'create'> = routed(of(ofSale, 'sales'), 'get', 'change');
  /** Of a sale that this process has not met. */
  async function attemptElsewhere(
    saleId: number,
    attempt: Rest<Parameters<Purchases['attempt']>>,
  ): Promise<Outcome> {
    try {
      const cell = cells[await directory.cellOf(saleId)];
      if (cell === undefined) return { kind: 'busy', reason: 'cell-unknown' };
      return cell.purchases.attempt(saleId, ...attempt);
    } catch (error) {
      return { kind: 'busy', reason: expectedPostgresFailure(error).reason };
    }
  }
  return {
    purchases: {
      attempt(saleId, ...attempt) {
        const cell = cells[directory.known(saleId) ?? -1];
        if (cell !== undefined) return cell.purchases.attempt(saleId, ...attempt);
        return attemptElsewhere(saleId, attempt);
      },
      idle: async () => void (await all(({ purchases }) => purchases.idle())),
    },
    sales: {
      ...sales,
      async create(given, key = null) {
        const { saleId, cell } = await directory.place(given.limitGroup ?? null, key);
        return (await ofCell(cells, cell)).sales.create(given, key, saleId);
      },
      async change(saleId, changes) {
        const { limitGroup } = changes;
        if (limitGroup && (await sales.get(saleId)) !== null) {
          const isHere = await directory.claim(limitGroup, await cellOf(saleId));
          if (!isHere) throw new ProblemError('not-supported', OTHER_CELL);
        }
        return sales.change(saleId, changes);
      },
    },
    reads: readsOver(cells, finders),
    strategy: {
      mirror: null,
      load: async (sale) => (await setUp(sale)).load?.(sale),
      setTerms: async (sale) => (await setUp(sale)).setTerms?.(sale),
      ...routed(of(ofSale, 'strategy'), 'restock'),
    },
    lifecycle: routed(of(ofOrder, 'lifecycle'), 'cancel', 'extend', 'transfer', 'refund'),
    payments: {
      notify: async (notification) => (await ofOrder(notification.orderId)).payments.notify(notification),
    },
    refunds: routed(of(ofSale, 'refunds'), 'request'),
    waitlist: routed(of(ofSale, 'waitlist'), 'join', 'leave'),
    groups: routed(of(ofSale, 'groups'), 'add', 'present'),
    ledger: first.ledger,
    tasks: {
      ...routed(of(ofTask, 'tasks'), 'retry', 'discard'),
      list: async (state, max) =>
        newest(await all(({ tasks }) => tasks.list(state, max)), ({ createdAt }) => createdAt, max),
      async countOpen() {
        const counts = await all(({ tasks }) => tasks.countOpen());
        const states = new Set(counts.flatMap((of) => [...of.keys()]));
        return new Map([...states].map((state) => [state, sum(counts.map((of) => of.get(state) ?? 0))]));
      },
    },
    saleEvents: {
      listen: async (saleId, res) => (await ofSale(saleId)).saleEvents.listen(saleId, res),
      get size() {
        return sum(cells.map(({ saleEvents }) => saleEvents.size));
      },
    },
    ticketing: first.ticketing && {
      ...first.ticketing, // by the clock of cell 0: a ticket whose turn begins now may be early by what the clocks differ
      waitingRoom: {
        turn: async (sale, ...customer) =>
          (await ofSale(sale.id)).ticketing!.waitingRoom.turn(sale, ...customer),
      },
    },
    record: async (event, path) => (await ofPath(path)).record(event, path),
  };
}

const OTHER_CELL =
  'The other sales of `limitGroup` are in another cell (CELL_DATABASE_URLS), and a sale never moves. Create a sale with this limitGroup instead.';

type Finders = ReturnType<typeof findersIn>;

function findersIn(cells: readonly CellParts[], directory: CellDirectory) {
  const first = cells[0]!;
  /** @throws ProblemError while the directory cannot be read */
  const cellOf = (saleId: number): Promise<number> =>
    directory.cellOf(saleId).catch((error) => {
      throw busy(expectedPostgresFailure(error).reason);
    });
  const ofSale = async (saleId: number) => ofCell(cells, await cellOf(saleId));
  /** An id of an earlier version may name the sale of another cell by chance: such an order is in cell 0. */
  async function ofOrder(orderId: string): Promise<CellParts> {
    const cell = await ofSale(saleOf(orderId));
    return cell === first || (await cell.reads.orders.get(orderId)) !== null ? cell : first;
  }
  const ofTask = async (id: number) => cells[Math.floor(id / IDS_OF_CELL)] ?? first;
  /** Where the audit log has an administrator's request: beside what it changes. */
  async function ofPath(path: string): Promise<CellParts> {
    const [, kind, id = ''] = /^\/(sales|orders|tasks)\/([^/]+)/i.exec(path) ?? [];
    if (kind === 'orders') return ofOrder(id.toLowerCase());
    const number = Number(id);
    if (!Number.isSafeInteger(number) || number < 1) return first;
    return kind === 'sales' ? ofSale(number) : ofTask(number);
  }
  return { first, cellOf, ofSale, ofOrder, ofTask, ofPath };
}

/** @throws ProblemError for a cell that was added after this process started */
async function ofCell(cells: readonly CellParts[], cell: number): Promise<CellParts> {
  const found = cells[cell];
  if (found === undefined)
    throw busy('cell-unknown', 'This process does not know the cell of the sale yet. Nothing was changed.');
  return found;
}

/** Each cell has its own connections for reads, and refuses more for itself. */
function readsOver(cells: readonly CellParts[], { ofSale, ofOrder }: Finders): Reads {
  const readable = ({ reads }: CellParts): Reads => {
    refuseFull(reads);
    return reads;
  };
  const saleReads = async (saleId: number) => readable(await ofSale(saleId));
  const of =
    <K extends keyof Reads>(key: K): Find<Reads[K]> =>
    async (saleId) =>
      (await saleReads(saleId))[key];
  const all = <T>(read: (reads: Reads) => Promise<T>) =>
    Promise.all(cells.map((cell) => read(readable(cell))));
  return {
    sales: {
      ...routed(of('sales'), 'get', 'getWithSeed'),
      async watch(saleIds) {
        const found = await Promise.all(saleIds.map(async (id) => (await saleReads(id)).sales.watch([id])));
        return { sales: found.flatMap(({ sales }) => sales), nowMs: found[0]?.nowMs ?? Date.now() };
      },
      list: async (query) => newest(await all(({ sales }) => sales.list(query)), ({ id }) => id, query.limit),
    },
    orders: {
      ...routed(of('orders'), 'list', 'counts', 'pendingChanges'),
      get: async (orderId) => readable(await ofOrder(orderId)).orders.get(orderId),
      async unpaidOf(userId, withinMs) {
        const found = await all(({ orders }) => orders.unpaidOf(userId, withinMs));
        const closed = found.flatMap(({ lastClosedAt }) => lastClosedAt ?? []);
        return {
          pending: sum(found.map(({ pending }) => pending)),
          closed: sum(found.map((one) => one.closed)),
          lastClosedAt: closed.sort((a, b) => Number(b) - Number(a))[0] ?? null,
        };
      },
    },
    uncommitted: {
      ...routed(of('uncommitted'), 'ofUser'),
      has: async () => false, // strategies that decide in Postgres have none
    },
    refunds: routed(of('refunds'), 'get', 'preview'),
    points: {
      async account(userId, max) {
        const found = await all(({ points }) => points.account(userId, max));
        const entries = newest(
          found.map(({ entries }) => entries),
          ({ createdAt }) => createdAt,
          max,
        );
        return { balance: sum(found.map(({ balance }) => balance)), entries };
      },
    },
    auditLog: routed(of('auditLog'), 'ofSale'),
    unmatched: {
      list: async (max, before) =>
        newest(await all(({ unmatched }) => unmatched.list(max, before)), ({ id }) => id, max),
    },
    waitlist: routed(of('waitlist'), 'find', 'list'),
    groups: routed(of('groups'), 'list', 'opensFor', 'codesFrom'),
    /** Every cell must be full before all reads are refused. */
    get waiting() {
      return Math.min(...cells.map(({ reads }) => reads.waiting));
    },
  };
}
