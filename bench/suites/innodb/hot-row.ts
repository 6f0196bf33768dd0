/** One row that every purchase updates: counts purchases within a time, on several connections, in three ways. */
import { rejectionOf, type Sql } from './sql.ts';

/** More than any run sells. */
const STOCK = 1_000_000_000;
const FREE = 'SELECT stock - sold AS free FROM sales WHERE id = 1 FOR UPDATE';
const TAKE = 'UPDATE sales SET sold = sold + 1 WHERE id = 1';
const TAKE_IF_FREE = `${TAKE} AND sold < stock`;
const READ = 'SELECT version FROM sales WHERE id = 1 AND sold < stock';
const TAKE_IF_SAME = 'UPDATE sales SET sold = sold + 1, version = version + 1 WHERE id = 1 AND version = ?';
const ORDER = 'INSERT INTO orders (sale_id, user_id) VALUES (1, ?)';

/** One try of one purchase. @returns whether it was made. @throws what the server rejects */
type Purchase = (sql: Sql, user: number) => Promise<boolean>;

/** Each is a transaction that takes the unit first and then writes the order. */
const purchases = {
  'for-update': async (sql, user) => {
    await sql.run('BEGIN');
    const { rows } = await sql.run(FREE);
    if (Number(rows[0]!.free) < 1) throw new Error('sold out');
    await sql.run(TAKE);
    await sql.run(ORDER, user);
    await sql.run('COMMIT');
    return true;
  },
  'conditional-update': async (sql, user) => {
    await sql.run('BEGIN');
    const { changed } = await sql.run(TAKE_IF_FREE);
    if (changed !== 1) throw new Error('sold out');
    await sql.run(ORDER, user);
    await sql.run('COMMIT');
    return true;
  },
  optimistic: async (sql, user) => {
    // Before the transaction: under REPEATABLE READ its snapshot would hide the new version from every later try.
    const { rows } = await sql.run(READ);
    await sql.run('BEGIN');
    const { changed } = await sql.run(TAKE_IF_SAME, Number(rows[0]!.version));
    if (changed === 1) await sql.run(ORDER, user);
    await sql.run(changed === 1 ? 'COMMIT' : 'ROLLBACK');
    return changed === 1;
  },
} satisfies Record<string, Purchase>;
export type Way = keyof typeof purchases;
export const ways = Object.keys(purchases) as readonly Way[];

const KEY = 'BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY';
const MARIADB_KEY = 'BIGINT AUTO_INCREMENT PRIMARY KEY';

export async function makeSale(sql: Sql, isMariadb: boolean): Promise<void> {
  await sql.run(
    'CREATE TABLE sales (id INT PRIMARY KEY, stock INT NOT NULL, sold INT NOT NULL, version INT NOT NULL)',
  );
  await sql.run(
    `CREATE TABLE orders (id ${isMariadb ? MARIADB_KEY : KEY}, sale_id INT NOT NULL, user_id INT NOT NULL, UNIQUE (sale_id, user_id))`,
  );
  await sql.run(`INSERT INTO sales (id, stock, sold, version) VALUES (1, ${STOCK}, 0, 0)`);
}

export type Rate = Readonly<Awaited<ReturnType<typeof measureRate>>>;

/** @param first the number of the first customer, unused so far */
export async function measureRate(
  connections: readonly Sql[],
  { way, durationMs, first }: { readonly way: Way; readonly durationMs: number; readonly first: number },
) {
  const [before] = await counts(connections[0]!);
  let [user, bought, tries, deadlocks] = [first, 0, 0, 0];
  const startMs = performance.now();
  const endMs = startMs + durationMs;
  const buy = async (sql: Sql) => {
    for (let mine = user++; performance.now() < endMs; tries++) {
      const isDone = await purchases[way](sql, mine).catch(async (error) => {
        if (rejectionOf(error) !== 'deadlock') throw error;
        deadlocks++;
        await sql.run('ROLLBACK');
        return false;
      });
      if (!isDone) continue;
      bought++;
      mine = user++;
    }
  };
  await Promise.all(connections.map(buy));
  const tookS = (performance.now() - startMs) / 1_000;
  const [sold, orders] = await counts(connections[0]!);
  const drift = Math.abs(sold - orders) + Math.abs(sold - before - bought);
  return {
    ...{ perSecond: bought / tookS, deadlocks },
    /** Tries for each purchase. */
    tries: tries / Math.max(1, bought),
    /** By how much units sold, orders and purchases differ. */
    drift,
  };
}

async function counts(sql: Sql): Promise<[sold: number, orders: number]> {
  const sale = await sql.run('SELECT sold FROM sales WHERE id = 1');
  const orders = await sql.run('SELECT count(*) AS orders FROM orders');
  return [Number(sale.rows[0]!.sold), Number(orders.rows[0]!.orders)];
}
