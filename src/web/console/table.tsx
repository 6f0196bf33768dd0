/** The table of all sales: searched, filtered and sorted in the browser. */
import { stateOf } from '../../domain/sale.ts';
import type { Sale } from '../ui/answers.ts';
import { compact, count, money } from '../ui/format.ts';
import { Bar, StateOptions, StatePill } from '../ui/parts.tsx';
import { adjust, CLOSED, go, hrefOf, param } from './address.ts';
import { Chart, Line } from './chart.tsx';
import { LONGEST, Unread, usePoll } from './list.tsx';
import { allRates, failure, ratesOf, readMs, refreshSales, sales } from './sales.ts';
import { distance, Time } from './time.tsx';
import { asAdmin } from './token.ts';

/** How many samples a sparkline shows: a minute. */
const SPARK = 30;

const NO_MATCH =
  'No sale matches. Customers, and orders by their short numbers, are found in an open sale, under Orders.';

interface Row {
  readonly sale: Sale;
  readonly state: ReturnType<typeof stateOf>;
  /** Units per second, latest last. */
  readonly rates: ReturnType<typeof ratesOf>;
  /** When it opens or ends; null: never, or it has ended. */
  readonly next: string | null;
}

/** A column, and what it sorts by; numbers begin with the greatest. */
const COLUMNS: readonly (readonly [title: string, key: (row: Row) => number | string])[] = [
  ['Sale', ({ sale }) => sale.name.toLowerCase()],
  ['State', ({ state }) => state],
  ['Sold', ({ sale }) => sale.sold],
  ['Sells now', ({ rates }) => rates.at(-1) ?? -1],
  ['Left', ({ sale }) => sale.remaining],
  ['Ordered', ({ sale }) => sale.sold * sale.priceCents],
  ['Next', ({ next }) => (next === null ? Number.NEGATIVE_INFINITY : -Date.parse(next))],
];

function rowOf(sale: Sale): Row {
  const state = stateOf(sale, readMs.value);
  const next = state === 'scheduled' ? sale.startsAt : state === 'ended' ? null : sale.endsAt;
  return { sale, state, rates: ratesOf(sale.id), next };
}

/** The rows that match, in order. */
function rowsOf(all: readonly Sale[]): Row[] {
  const [search, state, sort] = [param('search').toLowerCase(), param('state'), param('sort')];
  const rows = all
    .map(rowOf)
    .filter((row) => `${row.sale.name} ${row.sale.id}`.toLowerCase().includes(search))
    .filter((row) => state === '' || row.state === state);
  const key = COLUMNS.find(([title]) => title === sort.replace('-', ''))?.[1];
  if (key === undefined) return rows;
  const sign = sort.startsWith('-') ? -1 : 1;
  const compare = (a: number | string, b: number | string) =>
    typeof a === 'string' ? a.localeCompare(String(b)) : Number(b) - a;
  return rows.sort((a, b) => sign * (compare(key(a), key(b)) || b.sale.id - a.sale.id));
}

export function Sales() {
  usePoll(refreshSales, '');
  const all = sales.value;
  const rows = rowsOf(all ?? []);
  return (
    <section class="card stack sales" aria-label="Sales">
      <div class="row apart">
        <h2 tabIndex={-1}>Sales</h2>
        {all !== null && all.length > 0 && (
          <Chart title="Units sold per second, all sales" values={allRates()} />
        )}
        <div class="row">
          <a class="button" href={hrefOf({ ...CLOSED, open: 'rehearsal' })}>
            Rehearse
          </a>
          <a class="button primary" href={hrefOf({ ...CLOSED, open: 'new' })}>
            New sale
          </a>
        </div>
      </div>
      <Unread failure={failure.value} what="sales" />
      {all !== null && all.length > 0 && (
        <>
          <Search first={rows[0]} />
          {rows.length === 0 ? <p class="soft">{NO_MATCH}</p> : <Table rows={rows} />}
          {all.length === LONGEST && <p class="soft small">The newest {count(LONGEST)} sales.</p>}
        </>
      )}
      {all?.length === 0 && (
        <div class="empty">
          <h3>There is no sale yet</h3>
          <p class="soft">
            Create one, and give customers its address in the shop; or rehearse first, with customers that
            this page plays.
          </p>
        </div>
      )}
    </section>
  );
}

function Search({ first }: { first: Row | undefined }) {
  async function submit(): Promise<void> {
    const text = param('search');
    const isOrder = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(text);
    const order = isOrder ? await asAdmin<{ readonly saleId: number }>(`/orders/${text}`) : null;
    if (order?.kind === 'ok')
      go({ ...CLOSED, open: order.body.saleId, tab: 'Orders', find: text, search: '' });
    else if (first !== undefined) go({ ...CLOSED, open: first.sale.id });
  }
  return (
    <form
      class="row filter"
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <input
        type="search"
        id="search"
        maxLength={200}
        dir="auto"
        placeholder="Name, number, order id"
        aria-label="Search sales by name or number, or an order by its id"
        aria-keyshortcuts="/"
        title="Press / to search"
        value={param('search')}
        onInput={({ currentTarget }) => adjust({ search: currentTarget.value.trimStart() })}
      />
      <select aria-label="State" onChange={({ currentTarget }) => adjust({ state: currentTarget.value })}>
        <StateOptions chosen={param('state') as Row['state'] | ''} />
      </select>
    </form>
  );
}

function Table({ rows }: { rows: readonly Row[] }) {
  const sort = param('sort');
  return (
    <table class={failure.value === null ? '' : 'stale'}>
      <thead>
        <tr>
          {COLUMNS.map(([title]) => (
            <th
              key={title}
              scope="col"
              aria-sort={sort === title ? 'descending' : sort === `-${title}` ? 'ascending' : undefined}
            >
              <button type="button" onClick={() => adjust({ sort: sort === title ? `-${title}` : title })}>
                {title}
              </button>
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <SaleRow key={row.sale.id} {...row} />
        ))}
      </tbody>
    </table>
  );
}

function SaleRow({ sale, state, rates, next }: Row) {
  const { id, name, sold, stock, remaining, priceCents, currency } = sale;
  const rate = rates.at(-1) ?? 0;
  const open = () => go({ ...CLOSED, open: id });
  const isOpen = param('open') === String(id);
  return (
    <tr class={isOpen ? 'open' : ''} onClick={open}>
      <th scope="row" class="name">
        <a href={hrefOf({ ...CLOSED, open: id })} aria-current={isOpen ? 'true' : undefined}>
          <b dir="auto">{name}</b>
        </a>
        <span class="label">
          no. {id} · {money(priceCents, currency)}
        </span>
      </th>
      <td class="state">
        <StatePill state={state} />
      </td>
      <td class="sold">{count(sold)}</td>
      <td class="rate">
        {rates.some(Boolean) ? (
          <>
            <Line values={rates} length={SPARK} label={`Sells ${compact(rate)} a second`} />
            {compact(rate)}/s
          </>
        ) : (
          <span class="soft none">–</span>
        )}
      </td>
      <td class="left">
        {remaining < 0 ? <b class="bad">{count(-remaining)} too many</b> : count(remaining)}
        <span class="label"> of {count(stock)} left</span>
        <Bar label={`Units left of ${name}`} value={remaining} max={stock} isStock />
      </td>
      <td class="value" title="Units sold, paid or not, at the price of now">
        {money(sold * priceCents, currency)}
      </td>
      <td class="next">
        {next === null ? (
          <span class="soft none">–</span>
        ) : (
          <Time iso={next} text={`${state === 'scheduled' ? 'opens' : 'ends'} ${distance(next)}`} />
        )}
      </td>
    </tr>
  );
}
