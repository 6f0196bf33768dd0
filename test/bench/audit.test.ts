import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type AuditReport, audit, type CheckName, checkNames } from '../../bench/audit/audit.ts';
import type { OrderRow, PointsRow, StoresSnapshot } from '../../bench/audit/check.ts';
import type { AttemptOutcome, HistoryRecord } from '../../bench/history.ts';
import { resultOf } from '../../bench/history.ts';

interface Recorded {
  readonly why: string;
  readonly history: readonly HistoryRecord[];
  readonly stores: StoresSnapshot;
  readonly expected: AuditReport;
}

const folder = fileURLToPath(new URL('./recorded/', import.meta.url));
const recordings = readdirSync(folder).map((file) => ({
  file,
  ...(JSON.parse(readFileSync(`${folder}${file}`, 'utf8')) as Recorded),
}));

describe('recorded histories', () => {
  it.each(recordings)('$file: $why', ({ history, stores, expected }) => {
    expect(audit(history, stores)).toEqual(expected);
  });

  it('have a bad one for every check, caught by that check alone', () => {
    const caught = recordings
      .map(({ expected }) => checkNames.filter((name) => (expected[name] ?? 0) > 0))
      .filter((names) => names.length === 1)
      .flat();
    expect(new Set(caught)).toEqual(new Set(checkNames));
  });
});

/** A sale whose orders, answers, points and counters agree, as mutable data to plant a fault in. */
interface World {
  history: HistoryRecord[];
  orders: OrderRow[];
  points: PointsRow[];
  sale: { id: number; stock: number; sold: number };
  remaining: number | null;
  unsettled: number;
}

const saleId = 7;

function record(world: World, userId: string, outcome: AttemptOutcome, orderId: string | null): void {
  const id = world.history.length;
  const silent = outcome === 'unknown';
  world.history.push({
    id,
    op: 'purchase',
    saleId,
    userId,
    invokedUs: id * 10,
    completedUs: silent ? null : id * 10 + 500,
    result: resultOf[outcome],
    outcome,
    orderId,
    status: silent ? null : 201,
  });
}

function place(world: World, userId: string): string {
  const id = `order-${world.orders.length}`;
  world.orders.push({ id, saleId, userId, status: world.orders.length % 3 === 0 ? 'paid' : 'pending' });
  world.points.push({ userId, sourceId: id });
  return id;
}

/** What an attempt meets besides the stock: nothing, a lock that is not had, an answer that is lost (before or after). */
type Luck = 'fine' | 'busy' | 'lost-before' | 'lost-after';

/** Plays attempts against a model of a correct sale. */
function play(input: {
  stock: number;
  inRedis: boolean;
  attempts: readonly (readonly [number, Luck])[];
}): World {
  const sale = { id: saleId, stock: input.stock, sold: 0 };
  const world: World = { history: [], orders: [], points: [], sale, remaining: null, unsettled: 0 };
  for (const [buyer, luck] of input.attempts) {
    const userId = `buyer-${buyer}`;
    const existing = world.orders.find((order) => order.userId === userId);
    const free = world.orders.length < input.stock;
    if (luck === 'busy') record(world, userId, 'busy', null);
    else if (luck === 'lost-before') record(world, userId, 'unknown', null);
    else if (existing === undefined && !free) record(world, userId, 'sold-out', null);
    else {
      const orderId = existing?.id ?? place(world, userId);
      const told = existing === undefined ? 'accepted' : 'replayed';
      record(world, userId, luck === 'fine' ? told : 'unknown', luck === 'fine' ? orderId : null);
    }
  }
  world.sale.sold = world.orders.length;
  if (input.inRedis) world.remaining = input.stock - world.orders.length;
  return world;
}

function judge({ history, orders, points, sale, remaining, unsettled }: World): AuditReport {
  return audit(history, {
    postgres: { sale, orders, points },
    redis: { remaining, unsettled, settling: false },
  });
}

const worlds = fc
  .record({
    stock: fc.integer({ min: 0, max: 12 }),
    inRedis: fc.boolean(),
    attempts: fc.array(
      fc.tuple(
        fc.integer({ min: 0, max: 15 }),
        fc.constantFrom<Luck>('fine', 'fine', 'fine', 'busy', 'lost-before', 'lost-after'),
      ),
      { maxLength: 60 },
    ),
  })
  .map(play);

/** Orders that a customer was told of. */
function acknowledged({ history, orders }: World): OrderRow[] {
  return orders.filter(({ id }) => history.some(({ orderId }) => orderId === id));
}

/** Keeps the counters in step with the orders, so that only the planted fault is there to be seen. */
function recount(world: World): void {
  world.sale.sold = world.orders.length;
  if (world.remaining !== null) world.remaining = world.sale.stock - world.orders.length;
}

/** Faults, each with the check that must see it. Returns false when this world has no place for it. */
const faults: Record<string, { readonly seenBy: CheckName; readonly plant: (world: World) => boolean }> = {
  'a unit beyond the stock': {
    seenBy: 'oversold',
    plant: (world) => {
      while (world.orders.length <= world.sale.stock) {
        const userId = `late-${world.orders.length}`;
        record(world, userId, 'accepted', place(world, userId));
      }
      recount(world);
      return true;
    },
  },
  'told sold out while a unit is free': {
    seenBy: 'undersold',
    plant: (world) => {
      if (world.orders.length >= world.sale.stock) return false;
      record(world, 'late', 'sold-out', null);
      return true;
    },
  },
  'a second order for a customer': {
    seenBy: 'duplicates',
    plant: (world) => {
      const [order] = acknowledged(world);
      if (order === undefined) return false;
      world.sale.stock += 1;
      place(world, order.userId);
      recount(world);
      return true;
    },
  },
  'a repeat that names another order': {
    seenBy: 'duplicates',
    plant: (world) => {
      const [order] = acknowledged(world);
      if (order === undefined) return false;
      record(world, order.userId, 'replayed', 'order-of-nobody');
      return true;
    },
  },
  'an acknowledged order that is gone': {
    seenBy: 'lost',
    plant: (world) => {
      const [order] = acknowledged(world);
      if (order === undefined) return false;
      world.orders = world.orders.filter(({ id }) => id !== order.id);
      world.points = world.points.filter(({ sourceId }) => sourceId !== order.id);
      recount(world);
      return true;
    },
  },
  'an acknowledged order of another customer': {
    seenBy: 'lost',
    plant: (world) => {
      const [order] = acknowledged(world);
      if (order === undefined) return false;
      record(world, 'thief', 'replayed', order.id);
      return true;
    },
  },
  'an order of somebody who was refused': {
    seenBy: 'phantom',
    plant: (world) => {
      world.sale.stock += 1;
      record(world, 'refused', 'busy', null);
      place(world, 'refused');
      recount(world);
      return true;
    },
  },
  'a counter of Postgres that is off': {
    seenBy: 'drift',
    plant: (world) => {
      world.sale.sold += 1;
      if (world.remaining !== null) world.remaining -= 1;
      return true;
    },
  },
  'a counter of Redis that is off': {
    seenBy: 'drift',
    plant: (world) => {
      world.remaining = (world.remaining ?? world.sale.stock - world.sale.sold) + 1;
      return true;
    },
  },
  'a reservation that nobody settles': {
    seenBy: 'drift',
    plant: (world) => {
      world.unsettled = 1;
      return true;
    },
  },
  'an order without points': {
    seenBy: 'pointsMismatch',
    plant: (world) => world.points.pop() !== undefined,
  },
  'points given twice': {
    seenBy: 'pointsMismatch',
    plant: (world) => {
      const [entry] = world.points;
      if (entry === undefined) return false;
      world.points.push(entry);
      return true;
    },
  },
  'points for an order that is not there': {
    seenBy: 'pointsMismatch',
    plant: (world) => {
      world.points.push({ userId: 'late', sourceId: 'order-of-nobody' });
      return true;
    },
  },
};

describe('a model sale', () => {
  it('passes, whatever happens to it', () => {
    fc.assert(
      fc.property(worlds, (world) => {
        expect(judge(world)).toMatchObject({ verdict: 'pass', findings: [] });
      }),
      { numRuns: 500 },
    );
  });

  it.each(Object.entries(faults))('fails with %s', (_name, { seenBy, plant }) => {
    let planted = 0;
    fc.assert(
      fc.property(worlds, (world) => {
        if (!plant(world)) return;
        planted += 1;
        const report = judge(world);
        expect(report.verdict).toBe('fail');
        expect(report[seenBy]).toBeGreaterThan(0);
        expect(report.findings.length).toBeGreaterThan(0);
      }),
      { numRuns: 200 },
    );
    expect(planted).toBeGreaterThan(20);
  });
});
