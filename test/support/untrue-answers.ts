/** The answers of a sale under faults, compared with what Postgres has in the end. */

/** One request of a client. */
export interface Operation {
  readonly does: 'purchase' | 'cancel' | 'pay';
  readonly userId: string;
  readonly invokedMs: number;
  readonly completedMs: number;
  /** Null: no answer came. */
  readonly status: number | null;
  readonly problem: string;
  /** The order of the answer, or the one that was cancelled or paid. */
  readonly orderId: string | null;
}

/** An order as Postgres has it in the end. */
export interface FinalOrder {
  readonly id: string;
  readonly userId: string;
  readonly status: string;
  readonly createdMs: number;
}

/** What `Retry-After` says beside `unknown-outcome`: a repeat after that is answered for good. */
const UNKNOWN_MS = 4_000;

const mayHavePlaced = ({ status, problem }: Operation) => status === null || problem === 'unknown-outcome';
const isPlaced = ({ does, status }: Operation) => does === 'purchase' && (status ?? 500) < 300;

/** Answers that what Postgres has in the end shows to be untrue. */
export function untrueAnswers(operations: readonly Operation[], orders: readonly FinalOrder[]): string[] {
  return [...new Set(operations.map(({ userId }) => userId))].flatMap((userId) => [
    ...untrueFor(
      userId,
      operations.filter((operation) => operation.userId === userId),
      orders.filter((order) => order.userId === userId),
    ),
  ]);
}

function* untrueFor(
  userId: string,
  operations: readonly Operation[],
  orders: readonly FinalOrder[],
): Generator<string> {
  const purchases = operations.filter(({ does }) => does === 'purchase');
  const byId = new Map(orders.map((order) => [order.id, order]));
  for (const { id, createdMs, status } of orders) {
    const mentions = purchases.filter(({ orderId }) => orderId === id);
    const isExplained = mentions.some((one) => one.status === 201 || mayHavePlaced(one));
    if (!isExplained && !purchases.some((one) => one.status === null))
      yield `${userId}: order ${id} (${status}) was placed, and every attempt was answered otherwise`;
    // An unknown outcome is settled by a repeat after its Retry-After.
    const unknown = mentions.find((one) => mayHavePlaced(one));
    const denied = purchases.find(
      (one) =>
        unknown !== undefined &&
        one.status === 409 &&
        one.invokedMs > unknown.completedMs + UNKNOWN_MS &&
        one.completedMs < createdMs,
    );
    if (denied !== undefined && !mentions.some((one) => one.status === 201))
      yield `${userId}: order ${id} was placed after a repeat had been answered ${denied.problem}`;
  }
  for (const { orderId } of purchases.filter(isPlaced))
    if (!byId.has(orderId!)) yield `${userId}: order ${orderId} was answered and is not there`;
  const created = purchases.filter(({ status }) => status === 201).map(({ orderId }) => orderId);
  for (const id of new Set(created))
    if (created.filter((one) => one === id).length > 1)
      yield `${userId}: order ${id} was answered with 201 twice`;
  for (const { does, status, orderId } of operations)
    if (does === 'cancel' && status === 200 && byId.get(orderId!)?.status !== 'cancelled')
      yield `${userId}: order ${orderId} was cancelled and is ${byId.get(orderId!)?.status}`;
  yield* deniedToOwner(userId, operations, purchases);
}

/** From an answer that names an order until its cancellation is asked for, its customer has it. */
function* deniedToOwner(
  userId: string,
  operations: readonly Operation[],
  purchases: readonly Operation[],
): Generator<string> {
  for (const placed of purchases.filter(isPlaced)) {
    const cancelled = operations.filter(
      ({ does, orderId }) => does === 'cancel' && orderId === placed.orderId,
    );
    const untilMs = Math.min(Number.POSITIVE_INFINITY, ...cancelled.map(({ invokedMs }) => invokedMs));
    for (const { status, problem, invokedMs, completedMs } of purchases)
      if (status === 409 && invokedMs > placed.completedMs && completedMs < untilMs)
        yield `${userId}: has order ${placed.orderId}, and was answered ${problem}`;
  }
}
