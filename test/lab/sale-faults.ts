/** Faults to plant in a sale, each with the only check that may see it. */
import type { CheckName } from '../../lab/audit/audit.ts';
import { isActive, unitsOf } from '../../lab/audit/check.ts';
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
} from './model-sale.ts';

/** Orders that answers name. */
function acknowledged({ history, orders }: World): Order[] {
  return orders.filter(({ id }) => history.some(({ orderId }) => orderId === id));
}

interface Fault {
  readonly seenBy: CheckName;
  /** Returns false when this world has no place for the fault. */
  readonly plant: (world: World) => unknown;
}

const fault = (seenBy: CheckName, plant: Fault['plant']): Fault => ({ seenBy, plant });

/** A fault in the first selected order. */
function ofOrder(
  seenBy: CheckName,
  from: (world: World) => readonly Order[],
  change: (world: World, order: Order) => void,
): Fault {
  const plant = (world: World) => {
    const [order] = from(world);
    if (order === undefined) return false;
    return change(world, order);
  };
  return { seenBy, plant };
}

/** Their customers have placed them. */
const isOwn = ({ transferredFrom }: Order): boolean => transferredFrom === undefined;
const heldAndAcknowledged = (world: World): Order[] => acknowledged(world).filter(isActive).filter(isOwn);
const accepted = (world: World): Order[] =>
  active(world)
    .filter(isOwn)
    .filter(({ id }) =>
      world.history.some(({ outcome, orderId }) => outcome === 'accepted' && orderId === id),
    );
const anywhere = ({ orders }: World): Order[] => orders;
const within =
  (...states: string[]) =>
  ({ orders }: World): Order[] =>
    orders.filter(({ status }) => states.includes(status));
const settled = within('paid', 'refund-due');
const unpaid = within('pending', 'cancelled', 'expired');
const nobody = { id: 'order-of-nobody', userId: 'nobody' };

/** The rows without the order's rows that meet the condition. */
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

export const faults: Record<string, Fault> = {
  'a unit beyond the stock': fault('oversold', (world) => {
    while (unitsOf(active(world)) <= world.sale.stock) {
      const userId = `late-${world.orders.length}`;
      record(world, userId, 'accepted', place(world, userId));
    }
    recount(world);
  }),
  'sold out answered while a unit is free': fault('undersold', (world) => {
    world.sale.stock = Math.max(world.sale.stock, unitsOf(world.orders)) + 1;
    record(world, 'late', 'sold-out', null);
    recount(world);
  }),
  'too few units answered while enough are free': fault('undersold', (world) => {
    world.sale.stock = Math.max(world.sale.stock, unitsOf(world.orders)) + 2;
    record(world, 'late', 'not-enough-units', null, 0, { units: 2, remaining: 1 });
    recount(world);
  }),
  'a second order for a customer': ofOrder('duplicates', heldAndAcknowledged, (world, { userId }) => {
    world.sale.stock += 1;
    place(world, userId);
    recount(world);
  }),
  'a repeat that names an order after the first one was closed': ofOrder(
    'duplicates',
    (world) => acknowledged(world).filter((order) => !isActive(order) && isOwn(order)),
    (world, { userId }) => {
      world.sale.stock += 1;
      record(world, userId, 'replayed', place(world, userId));
      recount(world);
    },
  ),
  'an acknowledged order that is gone': ofOrder('lost', heldAndAcknowledged, (world, order) => {
    world.orders = world.orders.filter(({ id }) => id !== order.id);
    world.points = world.points.filter(({ sourceId }) => sourceId !== order.id);
    world.payments = drop(world.payments, order);
    world.tasks = drop(world.tasks, order);
    world.sale.stock -= order.quantity; // otherwise a refused customer was wronged, too
    recount(world);
  }),
  'an acknowledged order that is in another sale': ofOrder('lost', heldAndAcknowledged, (world, order) => {
    order.saleId += 1;
    world.sale.stock -= order.quantity;
    recount(world);
  }),
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
  ...Object.fromEntries(
    (
      [
        ['given twice', anywhere, 'order', earned],
        ['that were reversed twice', closed, 'order-reversal', -earned],
        ['of an active order that were reversed', active, 'order-reversal', -earned],
        ['that were revived without a reversal', anywhere, 'order-revival', earned],
      ] as const
    ).map(([what, orders, source, points]) => [
      `points ${what}`,
      ofOrder('pointsMismatch', orders, (world, order) => addPoints(world, order, source, points)),
    ]),
  ),
  'points for an order that does not exist': fault('pointsMismatch', (world) =>
    addPoints(world, nobody, 'order', earned),
  ),
  'points that were given to another customer': ofOrder('pointsMismatch', anywhere, (world, order) =>
    changePoints(world, order, { userId: 'thief' }),
  ),
  'points of a transferred order that the first customer keeps': ofOrder(
    'pointsMismatch',
    ({ orders }) => orders.filter((order) => !isOwn(order)),
    (world, { id, transferredFrom = '' }) => {
      world.points = world.points.filter(
        ({ sourceId, userId, points }) => sourceId !== id || userId !== transferredFrom || points > 0,
      );
    },
  ),
  'points of a closed order that its customer keeps': ofOrder('pointsMismatch', closed, (world, { id }) => {
    world.points = world.points.filter(
      ({ sourceId, sourceType }) => sourceId !== id || sourceType === 'order',
    );
  }),
  'points that a closed order never earned': ofOrder('pointsMismatch', closed, (world, { id }) => {
    world.points = world.points.map((entry) =>
      entry.sourceId === id && entry.points > 0 ? { ...entry, points: 0 } : entry,
    );
  }),
  'points of another quantity': ofOrder('pointsMismatch', anywhere, (_world, order) => {
    order.earns += earned;
  }),
  'points that were reversed in part': ofOrder('pointsMismatch', closed, (world, order) =>
    changePoints(world, order, { points: -1 }, 0),
  ),
  'a unit that a closed order holds': ofOrder('returnsMismatch', closed, (world) => {
    world.heldUnits = 1;
  }),
  'a change that stays in the outbox': fault('returnsMismatch', (world) => {
    if (world.remaining === null) return false;
    world.unpublished = 1;
    return true;
  }),
  ...Object.fromEntries(
    [1, -1].map((by) => [
      by > 0 ? 'a customer who cannot buy again' : 'a customer whom Redis forgot',
      fault('returnsMismatch', (world) => {
        if (world.held === null) return false;
        world.held += by;
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
  'an order that was placed in part': ofOrder('answersMismatch', accepted, (world, order) => {
    order.quantity += 1;
    world.sale.stock += 1;
    recount(world);
  }),
  'a customer with an order who is refused': ofOrder(
    'answersMismatch',
    heldAndAcknowledged,
    (world, order) => {
      world.sale.stock = unitsOf(active(world)) + unitsOf(closed(world)); // no unit is free
      recount(world);
      record(world, order.userId, 'not-open', null, 10_000);
    },
  ),
};
