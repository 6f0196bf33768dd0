/** The list of sales. */
import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { groupedSales, isScarce, type SaleState, stateOf, stockText } from '../../domain/sale.ts';
import type { ListPart } from '../../http/page-markup.ts';
import type { Sale } from '../ui/answers.ts';
import { ask } from '../ui/api.ts';
import { money, span } from '../ui/format.ts';
import { StateOptions, StatePill } from '../ui/parts.tsx';
import { now, serverNow, setClock } from '../ui/time.ts';
import { Picture, UnitsLeft } from './sale.tsx';

/** The list refreshes only while it is visible; the service coalesces the reads of all visitors. */
const REFRESH_MS = 5_000;
/** More than the service's clock and that of its store differ. */
const LATE_MS = 2_000;
const sales = signal<readonly Sale[] | null>(null);

export interface ListData extends ListPart {
  readonly sales: readonly Sale[];
  /** The query of the page's address: which sales the list has. */
  readonly query: string;
}

export function ListPage({ data }: { data: ListData }) {
  useEffect(() => {
    let isReading = false;
    const refresh = async () => {
      if (document.visibilityState !== 'visible' || isReading) return;
      isReading = true;
      const answer = await ask<readonly Sale[]>(`/sales?${data.query}`);
      isReading = false;
      if (answer.kind !== 'ok') return;
      sales.value = answer.body;
      // The page's clock stood still while the device slept.
      if (answer.sentMs - serverNow() > LATE_MS) setClock(answer.sentMs);
    };
    const timer = setInterval(refresh, REFRESH_MS);
    document.addEventListener('visibilitychange', refresh);
    return () => clearInterval(timer);
  }, []);
  const known = sales.value ?? data.sales;
  const nowMs = Math.max(now.value, serverNow());
  const shown = known.map((sale) => ({ ...sale, state: stateOf(sale, nowMs) }));
  return (
    <div class="wide stack list">
      <h1>On sale</h1>
      {!data.isWhole && <Filter {...data} />}
      {shown.length === 0 && <Empty isFiltered={!data.isWhole} />}
      {groupedSales(shown).map(([title, group]) => (
        <section key={title} class="stack">
          <h2>{title}</h2>
          <ul class="sales">
            {group.map((sale) => (
              <Item key={sale.id} {...{ sale, nowMs }} />
            ))}
          </ul>
        </section>
      ))}
      {data.older !== null && (
        <p>
          <a href={data.older}>Older sales</a>
        </p>
      )}
    </div>
  );
}

function Item({ sale, nowMs }: { sale: Sale & { readonly state: SaleState }; nowMs: number }) {
  const { state, startsAt, endsAt } = sale;
  const [word, next] =
    state === 'scheduled' ? ['opens in', startsAt] : ['ends in', state === 'open' ? endsAt : null];
  return (
    <li>
      <a class={`card sale ${state}`} href={`/shop/${sale.id}`}>
        <Picture sale={sale} />
        <h3 dir="auto">{sale.name}</h3>
        <span class="row apart">
          <b>{money(sale.priceCents, sale.currency)}</b>
          <StatePill state={state} />
        </span>
        <span class="stack tight">
          <UnitsLeft sale={sale} />
          <span class="row apart label">
            <span class={isScarce(sale, state) ? 'scarce' : undefined}>{stockText(sale, state)}</span>
            {next !== null && (
              <span>
                {word} {span(Math.max(0, Date.parse(next) - nowMs) / 1_000)}
              </span>
            )}
          </span>
        </span>
      </a>
    </li>
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
