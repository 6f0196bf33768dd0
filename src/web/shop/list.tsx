/** The list of sales. */
import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { stateOf } from '../../domain/sale.ts';
import type { ListPart } from '../../http/page-markup.ts';
import type { Sale } from '../ui/answers.ts';
import { ask } from '../ui/api.ts';
import { clock, count, money } from '../ui/format.ts';
import { Bar, StateOptions, StatePill } from '../ui/parts.tsx';
import { now, serverNow } from '../ui/time.ts';

/** The list refreshes only while it is visible; the service coalesces the reads of all visitors. */
const REFRESH_MS = 5_000;
const sales = signal<readonly Sale[] | null>(null);

/** Order of the list: open, scheduled, sold out, ended; newest first within each. */
const RANK = { open: 0, scheduled: 1, paused: 2, 'sold-out': 3, ended: 4 };

export interface ListData extends ListPart {
  readonly sales: readonly Sale[];
  /** The query of the page's address: which sales the list has. */
  readonly query: string;
}

export function ListPage({ data }: { data: ListData }) {
  useEffect(() => {
    const refresh = async () => {
      if (document.visibilityState !== 'visible') return;
      const answer = await ask<readonly Sale[]>(`/sales?${data.query}`);
      if (answer.kind === 'ok') sales.value = answer.body;
    };
    const timer = setInterval(refresh, REFRESH_MS);
    document.addEventListener('visibilitychange', refresh);
    return () => clearInterval(timer);
  }, []);
  const known = sales.value ?? data.sales;
  const nowMs = Math.max(now.value, serverNow());
  const shown = known
    .map((sale) => ({ sale, state: stateOf(sale, nowMs) }))
    .sort((a, b) => RANK[a.state] - RANK[b.state] || b.sale.id - a.sale.id);
  return (
    <div class="wide stack">
      <h1>On sale</h1>
      {!data.isWhole && <Filter {...data} />}
      {shown.length === 0 ? (
        <Empty isFiltered={!data.isWhole} />
      ) : (
        <ul class="sales">
          {shown.map(({ sale, state }) => (
            <li key={sale.id}>
              <a class="card sale" href={`/shop/${sale.id}`}>
                <span class="row apart">
                  <StatePill state={state} />
                  <b>{money(sale.priceCents, sale.currency)}</b>
                </span>
                <h2 dir="auto">{sale.name}</h2>
                <span class="stack tight">
                  <Bar label="Units left" value={sale.remaining} max={sale.stock} />
                  <span class="row apart label">
                    <span>
                      {count(Math.max(0, sale.remaining))} of {count(sale.stock)} left
                    </span>
                    {state === 'scheduled' && <span>in {clock(Date.parse(sale.startsAt!) - nowMs)}</span>}
                  </span>
                </span>
              </a>
            </li>
          ))}
        </ul>
      )}
      {data.older !== null && (
        <p>
          <a href={data.older}>Older sales</a>
        </p>
      )}
    </div>
  );
}

/** A form of plain HTML: the server renders what it asks for. */
function Filter({ search, state }: Pick<ListData, 'search' | 'state'>) {
  return (
    <form class="row filter">
      <input
        type="search"
        name="search"
        defaultValue={search}
        maxLength={200}
        dir="auto"
        placeholder="Search"
        aria-label="Search by name"
      />
      <select name="state" aria-label="State" onChange={(event) => event.currentTarget.form!.requestSubmit()}>
        <StateOptions chosen={state} />
      </select>
      <button type="submit" class="slim">
        Show
      </button>
    </form>
  );
}

const Empty = ({ isFiltered }: { isFiltered: boolean }) =>
  isFiltered ? (
    <div class="card empty">
      <h2>No sale matches</h2>
      <p>
        <a href="/">Show all sales</a>
      </p>
    </div>
  ) : (
    <div class="card empty">
      <h2>Nothing is on sale yet</h2>
      <p class="soft">Please come back later.</p>
    </div>
  );
