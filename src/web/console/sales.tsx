/** Sales: create, restock, audit, and the command for a load test. */
import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { type SaleState, stateOf } from '../../domain/sale.ts';
import type { Answer, Audit, Sale } from '../ui/answers.ts';
import { clock, count, dateTime, money } from '../ui/format.ts';
import { Bar, Command, Notice, ShowOlder, StateOptions, StatePill, useKeptFocus } from '../ui/parts.tsx';
import { now, serverNow } from '../ui/time.ts';
import { OrdersOf } from './orders.tsx';
import { SaleForm } from './sale-form.tsx';
import { asAdmin, press } from './token.ts';

type Auth = 'none' | 'jwt';

const REFRESH_MS = 2_000;
/** How many of the newest sales the console shows at first, and adds at each press. */
const SHOWN = 20;
const shown = signal(SHOWN);

/** Which sales are listed. */
const filter = signal<{ readonly search: string; readonly state: SaleState | '' }>({ search: '', state: '' });
const sales = signal<readonly Sale[] | null>(null);
const audits = signal<Readonly<Record<number, Audit | 'running'>>>({});
/** A sale, or the form of a new one. */
type Place = number | 'new';
/** The outcome of the last request, and its place on the page. */
interface Result {
  readonly at: Place;
  readonly tone: 'good' | 'bad';
  readonly title: string;
  readonly text?: string;
}
const result = signal<Result | null>(null);
/** The place of a change in progress. */
const acting = signal<Place | null>(null);
const isCreating = signal(false);

async function refresh(): Promise<void> {
  if (document.visibilityState !== 'visible') return;
  const { search, state } = filter.value;
  const query = new URLSearchParams({ limit: String(shown.value) });
  if (search.trim() !== '') query.set('search', search.trim());
  if (state !== '') query.set('state', state);
  const path = `/sales?${query}`;
  wanted = path;
  const answer = await asAdmin<readonly Sale[]>(path);
  if (answer.kind === 'ok' && path === wanted) sales.value = answer.body;
}
/** The latest list that was asked for: the answer for an earlier filter may come later. */
let wanted = '';

/** Sends a change, unless one is in progress. @returns the sale; null: it was not sent, or failed */
async function act(at: Place, path: string, body: object, method?: 'PATCH'): Promise<Sale | null> {
  if (acting.value !== null) return null;
  acting.value = at;
  const answer = await press<Sale>(path, body, method);
  await failed(at, answer);
  acting.value = null;
  return answer.kind === 'ok' ? answer.body : null;
}

/** Shows at its place why a request failed, if it did, and refreshes the sales. */
async function failed(at: Place, answer: Answer<unknown>): Promise<void> {
  const text =
    answer.kind === 'problem' ? answer.detail : 'No response came. Check the figures before you try again.';
  result.value = answer.kind === 'ok' ? null : { at, tone: 'bad', title: 'The request failed', text };
  await refresh();
}

export function Sales({ auth }: { auth: Auth }) {
  const section = useRef<HTMLElement>(null);
  useKeptFocus(section);
  useEffect(() => {
    void refresh();
    const timer = setInterval(refresh, REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  const isFiltered = filter.value.search.trim() !== '' || filter.value.state !== '';
  return (
    <section ref={section} class="card stack" aria-label="Sales">
      <div class="row apart">
        <h2 tabIndex={-1}>Sales</h2>
        <button
          type="button"
          class="slim"
          aria-expanded={isCreating.value}
          onClick={() => (isCreating.value = !isCreating.value)}
        >
          {isCreating.value ? 'Close' : 'New sale'}
        </button>
      </div>
      {isCreating.value && <NewSale />}
      <ResultAt place="new" />
      {(isFiltered || (sales.value?.length ?? 0) > 0) && <Filter />}
      {sales.value?.length === 0 && (
        <p class="soft">{isFiltered ? 'No sale matches.' : 'There is no sale yet.'}</p>
      )}
      <ul class="rows">
        {sales.value?.map((sale) => (
          <Row key={sale.id} {...{ sale, auth }} />
        ))}
      </ul>
      <ShowOlder of="sales" list={sales.value} shown={shown} by={SHOWN} refresh={refresh} />
    </section>
  );
}

function Filter() {
  const set = (changed: Partial<typeof filter.value>) => {
    filter.value = { ...filter.value, ...changed };
    shown.value = SHOWN;
    void refresh();
  };
  return (
    <div class="row filter">
      <input
        type="search"
        maxLength={200}
        dir="auto"
        placeholder="Search"
        aria-label="Search sales by name"
        defaultValue={filter.value.search}
        onInput={({ currentTarget }) => set({ search: currentTarget.value })}
      />
      <select
        aria-label="State"
        onChange={({ currentTarget }) => set({ state: currentTarget.value as SaleState | '' })}
      >
        <StateOptions chosen={filter.value.state} />
      </select>
    </div>
  );
}

/** Announced by screen readers. */
function ResultAt({ place }: { place: Place }) {
  const { at, tone = 'bad', title = '', text } = result.value ?? {};
  return (
    <div aria-live="polite">
      {at === place && (
        <Notice tone={tone} title={title}>
          {text}
        </Notice>
      )}
    </div>
  );
}

function Row({ sale, auth }: { sale: Sale; auth: Auth }) {
  const state = stateOf(sale, Math.max(now.value, serverNow()));
  const audit = audits.value[sale.id];
  return (
    <li class="stack sale-row">
      <div class="sale-line">
        <div class="sale-name">
          <a href={`/shop/${sale.id}`}>
            <b dir="auto">{sale.name}</b>
          </a>
          <span class="row">
            <StatePill state={state} />
            <span class="label">
              no. {sale.id} · {money(sale.priceCents)}
              {sale.maxPerOrder > 1 && ` · up to ${sale.maxPerOrder} an order`}
              {state === 'scheduled' && ` · opens in ${clock(Date.parse(sale.startsAt!) - now.value)}`}
            </span>
          </span>
          {(sale.startsAt !== null || sale.endsAt !== null) && <Opening {...sale} />}
        </div>
        <div class="stack tight">
          <span class="row apart small">
            <b>
              {count(sale.sold)} sold
              {sale.remaining < 0 && <span class="bad">, {count(-sale.remaining)} too many</span>}
            </b>
            <span class="soft">
              {count(Math.max(0, sale.remaining))} of {count(sale.stock)} left
            </span>
          </span>
          <Bar label={`Units left of ${sale.name}`} value={sale.remaining} max={sale.stock} />
        </div>
        <Restock sale={sale} />
        <div class="row">
          {state !== 'ended' && <Pause sale={sale} />}
          <button type="button" class="slim" disabled={audit === 'running'} onClick={() => runAudit(sale.id)}>
            {audit === 'running' ? 'Auditing…' : 'Audit'}
          </button>
        </div>
      </div>
      <ResultAt place={sale.id} />
      <div aria-live="polite">{audit !== undefined && audit !== 'running' && <Verdict {...audit} />}</div>
      <OrdersOf sale={sale} />
      <ChangeSale sale={sale} />
      <details>
        <summary>Load test</summary>
        {auth === 'none' ? (
          <Command text={loadOn(sale.id)} />
        ) : (
          <p class="small soft">
            With AUTH=jwt a purchase needs a ticket. See the cell lua-tickets of the benchmark.
          </p>
        )}
      </details>
    </li>
  );
}

const Opening = ({ startsAt, endsAt }: Sale) => (
  <span class="label">
    {startsAt !== null && `from ${dateTime(startsAt)} `}
    {endsAt !== null && `until ${dateTime(endsAt)}`}
  </span>
);

function Restock({ sale }: { sale: Sale }) {
  return (
    <form
      class="restock"
      onSubmit={async (event) => {
        event.preventDefault();
        const form = event.currentTarget;
        const sign = (event.submitter as HTMLButtonElement | null)?.value === 'cut' ? -1 : 1;
        const units = sign * Number(new FormData(form).get('units'));
        const changed = await act(sale.id, `/sales/${sale.id}/restock`, { units });
        if (changed !== null) {
          const title = units > 0 ? `${count(units)} added` : `${count(-units)} cut`;
          result.value = {
            at: sale.id,
            tone: 'good',
            title: `${title}: the stock is ${count(changed.stock)}`,
          };
        }
      }}
    >
      <input
        type="number"
        name="units"
        min={1}
        max={1_000_000_000}
        required
        defaultValue="10"
        aria-label={`Units for ${sale.name}`}
      />
      <button type="submit" class="slim" value="add" aria-disabled={acting.value !== null}>
        Add
      </button>
      <button type="submit" class="slim" value="cut" aria-disabled={acting.value !== null}>
        Cut
      </button>
    </form>
  );
}

async function runAudit(saleId: number): Promise<void> {
  const set = (audit: Audit | 'running' | undefined) => {
    const { [saleId]: _before, ...others } = audits.value;
    audits.value = audit === undefined ? others : { ...others, [saleId]: audit };
  };
  set('running');
  const answer = await asAdmin<Audit>(`/sales/${saleId}/audit`);
  set(answer.kind === 'ok' ? answer.body : undefined);
  if (answer.kind !== 'ok') await failed(saleId, answer);
}

function Verdict({ agrees, differences, isMirrored, auditedAt }: Audit) {
  const at = (
    <p class="small">
      Audited on <time dateTime={auditedAt}>{dateTime(auditedAt)}</time>.
    </p>
  );
  if (agrees)
    return (
      <Notice tone="good" title={isMirrored ? 'The stores agree' : 'Postgres agrees with itself'}>
        Every sold unit has one active order and one points entry
        {isMirrored && ', and Redis lists the same buyers as Postgres'}.{at}
      </Notice>
    );
  const [first = ''] = differences;
  const isOversold = first.startsWith('Oversold');
  return (
    <Notice tone="bad" title={isOversold ? first : 'The stores differ'}>
      <ul>
        {differences.slice(isOversold ? 1 : 0).map((one) => (
          <li key={one}>{one}</li>
        ))}
      </ul>
      {differences.some((one) => one.includes('Redis')) && (
        <p>
          <code>npm run reconcile</code> repairs Redis.
        </p>
      )}
      {at}
    </Notice>
  );
}

/** The load command of the README, for this sale. */
const loadOn = (saleId: number) =>
  `npx autocannon -c 64 -a 2000 -I -m POST -H 'Content-Type: application/json' \\\n  -b '{"userId":"user-[<id>]"}' ${location.origin}/sales/${saleId}/orders`;

function NewSale() {
  return (
    <SaleForm
      label="Create the sale"
      onSubmit={async (sale) => {
        const created = await act('new', '/sales', sale);
        if (created === null) return;
        isCreating.value = false;
        const title = `Sale no. ${created.id} is created`;
        result.value = { at: created.id, tone: 'good', title };
      }}
    />
  );
}

/** Changes that hold at once: a pause, and the terms of a sale. @returns whether it is changed */
async function change(sale: Sale, changes: object, title: string): Promise<boolean> {
  const changed = await act(sale.id, `/sales/${sale.id}`, changes, 'PATCH');
  if (changed !== null) result.value = { at: sale.id, tone: 'good', title };
  return changed !== null;
}

const Pause = ({ sale }: { sale: Sale }) => (
  <button
    type="button"
    class="slim"
    aria-disabled={acting.value !== null}
    onClick={() =>
      change(sale, { paused: !sale.paused }, sale.paused ? 'The sale goes on' : 'The sale is paused')
    }
  >
    {sale.paused ? 'Resume' : 'Pause'}
  </button>
);

const ChangeSale = ({ sale }: { sale: Sale }) => (
  <details>
    <summary>Change</summary>
    <SaleForm
      sale={sale}
      label="Save the changes"
      onSubmit={(changes) => change(sale, changes, 'The sale is changed')}
    />
  </details>
);
