import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type AuditReport, audit, type CheckName, checkNames } from '../../bench/audit/audit.ts';
import { isActive, type StoresSnapshot } from '../../bench/audit/check.ts';
import type { HistoryRecord } from '../../bench/kit/history.ts';
import {
  active,
  addPayment,
  addPoints,
  addTask,
  closed,
  earned,
  type Order,
  place,
  record,
  recount,
  type World,
  worlds,
} from './model-sale.ts';

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
  it.each(recordings)('$file: $why', ({ file, history, stores, expected }) => {
    expect(audit(history, stores)).toEqual(expected);
    const kind = { good: 'pass', bad: 'fail', unknown: 'unknown' }[file.split('-')[0]!];
    expect(expected.verdict).toBe(kind);
  });

  it('have a bad one for every check, caught by that check alone', () => {
    const caught = recordings
      .map(({ expected }) => checkNames.filter((name) => (expected[name] ?? 0) > 0))
      .filter((names) => names.length === 1)
      .flat();
    expect(new Set(caught)).toEqual(new Set(checkNames));
  });
});

it('several sales are judged as one: numbers add up, and an unseen sale hides none that is wrong', () => {
  const of = (name: string) => recordings.find(({ file }) => file === name)!;
  const [bad, good] = [of('bad-oversold.json'), of('good-sold-out.json')];
  const unseen = { ...good.stores, postgres: { unreadable: 'gone' } };
  const twice = audit(bad.history, bad.stores, bad.stores);
  expect(twice).toMatchObject({ verdict: 'fail', oversold: 2 * bad.expected.oversold!, lost: 0 });
  expect(twice.findings).toEqual(bad.expected.findings);
  expect(audit(bad.history, bad.stores, unseen)).toMatchObject({ verdict: 'fail', oversold: null });
  expect(audit(good.history, good.stores, unseen)).toMatchObject({ verdict: 'unknown', drift: null });
});

function judge(world: World): AuditReport {
  const { history, remaining, buyers, unsettled, ...postgres } = world;
  return audit(history, { postgres, redis: { remaining, buyers, unsettled, settling: false } });
}

/** Orders in the answers to a customer. */
function acknowledged({ history, orders }: World): Order[] {
  return orders.filter(({ id }) => history.some(({ orderId }) => orderId === id));
}

interface Fault {
  readonly seenBy: CheckName;
  /** Another check that sees it, too. */
  readonly also?: CheckName | undefined;
  /** Returns false when this world has no place for it. */
  readonly plant: (world: World) => unknown;
}

const fault = (seenBy: CheckName, plant: Fault['plant'], also?: CheckName): Fault => ({
  seenBy,
  plant,
  also,
});

/** A fault of the first of some orders. */
function ofOrder(
  seenBy: CheckName,
  from: (world: World) => readonly Order[],
  change: (world: World, order: Order) => void,
  also?: CheckName,
): Fault {
  const plant = (world: World) => {
    const [order] = from(world);
    if (order === undefined) return false;
    return change(world, order);
  };
  return { seenBy, also, plant };
}

const anywhere = ({ orders }: World): Order[] => orders;
const within =
  (...states: string[]) =>
  ({ orders }: World): Order[] =>
    orders.filter(({ status }) => states.includes(status));
const settled = within('paid', 'refund-due');
const unpaid = within('pending', 'cancelled', 'expired');
const nobody = { id: 'order-of-nobody', userId: 'nobody' };

/** Removes rows about the order that meet the condition. */
function drop<T extends { readonly orderId: string | null }>(
  rows: readonly T[],
  { id }: Order,
  is: (row: T) => boolean = () => true,
): T[] {
  return rows.filter((row) => row.orderId !== id || !is(row));
}

/** Changes the points entries of an order. */
const changePoints = (
  world: World,
  { id }: Order,
  change: Partial<World['points'][number]>,
  below = Infinity,
) => {
  world.points = world.points.map((entry) =>
    entry.sourceId === id && entry.points < below ? { ...entry, ...change } : entry,
  );
};

/** Faults, each with the check that must see it; no other one may. */
const faults: Record<string, Fault> = {
  'a unit beyond the stock': fault('oversold', (world) => {
    while (active(world).length <= world.sale.stock) {
      const userId = `late-${world.orders.length}`;
      record(world, userId, 'accepted', place(world, userId));
    }
    recount(world);
  }),
  'sold out answered while a unit is free': fault('undersold', (world) => {
    if (world.orders.length >= world.sale.stock) return false;
    return record(world, 'late', 'sold-out', null);
  }),
  'a second order for a customer': ofOrder(
    'duplicates',
    (world) => acknowledged(world).filter(isActive),
    (world, { userId }) => {
      world.sale.stock += 1;
      place(world, userId);
      recount(world);
    },
  ),
  'a repeat that names another order': ofOrder(
    'duplicates',
    acknowledged,
    (world, { userId }) => record(world, userId, 'replayed', nobody.id),
    'lost',
  ),
  'an acknowledged order that is gone': ofOrder(
    'lost',
    acknowledged,
    (world, order) => {
      world.orders = world.orders.filter(({ id }) => id !== order.id);
      world.points = world.points.filter(({ sourceId }) => sourceId !== order.id);
      world.payments = drop(world.payments, order);
      world.tasks = drop(world.tasks, order);
      recount(world);
    },
    'undersold',
  ),
  'an acknowledged order of another customer': ofOrder('lost', acknowledged, (world, { id }) =>
    record(world, 'thief', 'replayed', id),
  ),
  'an order of a refused customer': fault('phantom', (world) => {
    world.sale.stock += 1;
    record(world, 'refused', 'busy', null);
    place(world, 'refused');
    recount(world);
  }),
  'a counter of Postgres that is off': fault('drift', (world) => {
    world.sale.sold += 1;
    if (world.remaining !== null) world.remaining -= 1;
  }),
  'a counter of Redis that is off': fault('drift', (world) => {
    world.remaining = (world.remaining ?? world.sale.stock - world.sale.sold) + 1;
  }),
  'a reservation that is never settled': fault('drift', (world) => {
    world.unsettled = 1;
  }),
  'an order without points': ofOrder('pointsMismatch', anywhere, (world, { id }) => {
    world.points = world.points.filter(({ sourceId }) => sourceId !== id);
  }),
  'points given twice': ofOrder('pointsMismatch', anywhere, (world, order) =>
    addPoints(world, order, 'order', earned),
  ),
  'points for an order that does not exist': fault('pointsMismatch', (world) =>
    addPoints(world, nobody, 'order', earned),
  ),
  'points that were given to another customer': ofOrder('pointsMismatch', anywhere, (world, order) =>
    changePoints(world, order, { userId: 'thief' }),
  ),
  'points of a closed order that its customer keeps': ofOrder('pointsMismatch', closed, (world, { id }) => {
    world.points = world.points.filter(
      ({ sourceId, sourceType }) => sourceId !== id || sourceType === 'order',
    );
  }),
  'points that were reversed twice': ofOrder('pointsMismatch', closed, (world, order) =>
    addPoints(world, order, 'order-reversal', -earned),
  ),
  'points of an active order that were reversed': ofOrder('pointsMismatch', active, (world, order) =>
    addPoints(world, order, 'order-reversal', -earned),
  ),
  'points that were revived without a reversal': ofOrder('pointsMismatch', anywhere, (world, order) =>
    addPoints(world, order, 'order-revival', earned),
  ),
  'points that were reversed in part': ofOrder('pointsMismatch', closed, (world, order) =>
    changePoints(world, order, { points: -1 }, 0),
  ),
  'a unit that a closed order holds': ofOrder('returnsMismatch', closed, (world) => {
    world.heldUnits = 1;
  }),
  'a unit that was not published to Redis': fault(
    'returnsMismatch',
    (world) => {
      if (world.remaining === null || world.buyers === null || closed(world).length === 0) return false;
      world.unpublished = 1;
      world.remaining -= 1;
      world.buyers += 1;
      return true;
    },
    'drift',
  ),
  ...Object.fromEntries(
    [1, -1].map((by) => [
      by > 0 ? 'a customer who cannot buy again' : 'a customer whom Redis forgot',
      fault('returnsMismatch', (world) => {
        if (world.buyers === null) return false;
        world.buyers += by;
        return true;
      }),
    ]),
  ),
  'a payment with two effects': ofOrder('paymentsMismatch', settled, (world, order) => {
    addPayment(world, order, order.status);
  }),
  'a status that no payment explains': ofOrder('paymentsMismatch', settled, (world, order) => {
    world.payments = drop(world.payments, order, ({ result }) => result !== 'surplus');
  }),
  'a payment that changed nothing, and says that it did': ofOrder(
    'paymentsMismatch',
    unpaid,
    (world, order) => {
      addPayment(world, order, 'paid');
    },
  ),
  'a payment for an order that does not exist': fault('paymentsMismatch', (world) => {
    addPayment(world, nobody, 'paid');
  }),
  'a task that is lost': ofOrder('tasksMismatch', settled, (world, order) => {
    world.tasks = drop(world.tasks, order, ({ kind }) => kind !== 'award');
  }),
  'a task that exists twice': ofOrder('tasksMismatch', settled, (world, order) =>
    addTask(world, order, order.status === 'paid' ? 'award' : 'refund'),
  ),
  'a surplus payment that is not refunded': ofOrder('tasksMismatch', settled, (world, order) => {
    addPayment(world, order, 'surplus');
  }),
  'two surplus payments, of which one is refunded twice': ofOrder(
    'tasksMismatch',
    settled,
    (world, order) => {
      const [first] = [addPayment(world, order, 'surplus'), addPayment(world, order, 'surplus')];
      for (let n = 0; n < 2; n++) addTask(world, order, 'refund', first);
    },
  ),
  'a task that is dead': ofOrder('tasksMismatch', settled, (world, order) => {
    world.tasks = world.tasks.map((task) => (task.orderId === order.id ? { ...task, state: 'dead' } : task));
  }),
  'a task that the status does not ask for': ofOrder('tasksMismatch', unpaid, (world, order) =>
    addTask(world, order, 'ship'),
  ),
};

describe('a model sale', () => {
  it('passes under any sequence of events', () => {
    const seen = new Set<string>();
    fc.assert(
      fc.property(worlds, (world) => {
        for (const { status } of world.orders) seen.add(status);
        for (const { result } of world.payments) seen.add(result);
        expect(judge(world)).toMatchObject({ verdict: 'pass', findings: [] });
      }),
      { numRuns: 1_000 },
    );
    const states = ['pending', 'paid', 'cancelled', 'expired', 'refund-due'];
    expect(seen).toEqual(new Set([...states, 'revived', 'surplus']));
  });

  it.each(Object.entries(faults))('fails with %s', (_name, { seenBy, also, plant }) => {
    let planted = 0;
    fc.assert(
      fc.property(worlds, (world) => {
        if (plant(world) === false) return;
        planted += 1;
        const report = judge(world);
        expect(report.verdict).toBe('fail');
        expect(report[seenBy]).toBeGreaterThan(0);
        expect(report.findings.length).toBeGreaterThan(0);
        const others = checkNames.filter((name) => name !== seenBy && name !== also && report[name] !== 0);
        expect(others).toEqual([]);
      }),
      { numRuns: 200 },
    );
    expect(planted).toBeGreaterThan(20);
  });
});
