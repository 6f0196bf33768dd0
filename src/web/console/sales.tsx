/** Sales: create, change, pause, restock and audit. */
import { useSignal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { stateOf } from '../../domain/sale.ts';
import type { Audit, Sale } from '../ui/answers.ts';
import { clock, count, dateTime, money } from '../ui/format.ts';
import { Bar, Notice, StateOptions, StatePill, useKeptFocus } from '../ui/parts.tsx';
import { now, serverNow } from '../ui/time.ts';
import { act, isActing, ResultAt, show } from './actions.tsx';
import { ChartsOf } from './chart.tsx';
import { Filter, type List, ShowOlder, useList } from './list.tsx';
import { OrdersOf } from './orders.tsx';
import { SaleForm } from './sale-form.tsx';
import { asAdmin } from './token.ts';

/** A sale in its list. */
interface Props {
  readonly sale: Sale;
  readonly list: List<Sale>;
}
const placeOf = ({ id }: Sale): string => `sale ${id}`;

export function Sales() {
  const section = useRef<HTMLElement>(null);
  useKeptFocus(section);
  const list = useList<Sale>('/sales');
  const isCreating = useSignal(false);
  const sales = list.items.value;
  const isFiltered = Object.keys(list.filter.value).length > 0;
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
      {isCreating.value && (
        <SaleForm
          label="Create the sale"
          onSubmit={async (body) => {
            const titleOf = ({ id }: Sale) => `Sale no. ${id} is created`;
            const { refresh } = list;
            const created = await act<Sale>({ at: 'new', path: '/sales', body, titleOf, refresh });
            if (created !== null) isCreating.value = false;
          }}
        />
      )}
      <ResultAt place="new" />
      {(isFiltered || (sales?.length ?? 0) > 0) && (
        <Filter
          list={list}
          search={{ placeholder: 'Search', label: 'Search sales by name', maxLength: 200 }}
          select={{ name: 'state', label: 'State', options: <StateOptions chosen="" /> }}
        />
      )}
      {sales?.length === 0 && <p class="soft">{isFiltered ? 'No sale matches.' : 'There is no sale yet.'}</p>}
      <ul class="rows">
        {sales?.map((sale) => (
          <Row key={sale.id} {...{ sale, list }} />
        ))}
      </ul>
      <ShowOlder list={list} of="sales" by={20} />
    </section>
  );
}

function Row(props: Props) {
  const { sale } = props;
  const state = stateOf(sale, Math.max(now.value, serverNow()));
  const audit = useSignal<Audit | 'running' | null>(null);
  const verdict = audit.value;
  async function runAudit(): Promise<void> {
    audit.value = 'running';
    const answer = await asAdmin<Audit>(`/sales/${sale.id}/audit`);
    audit.value = answer.kind === 'ok' ? answer.body : null;
    if (answer.kind !== 'ok') show(placeOf(sale), answer, String);
  }
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
              no. {sale.id} · {money(sale.priceCents, sale.currency)}
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
        <Restock {...props} />
        <div class="row">
          {state !== 'ended' && <Pause {...props} />}
          <button type="button" class="slim" disabled={verdict === 'running'} onClick={runAudit}>
            {verdict === 'running' ? 'Auditing…' : 'Audit'}
          </button>
        </div>
      </div>
      <ResultAt place={placeOf(sale)} />
      <div aria-live="polite">{verdict !== null && verdict !== 'running' && <Verdict {...verdict} />}</div>
      <ChartsOf sale={sale} />
      <OrdersOf sale={sale} />
      <ChangeSale {...props} />
    </li>
  );
}

const Opening = ({ startsAt, endsAt }: Sale) => (
  <span class="label">
    {startsAt !== null && `from ${dateTime(startsAt)} `}
    {endsAt !== null && `until ${dateTime(endsAt)}`}
  </span>
);

function Restock({ sale, list: { refresh } }: Props) {
  return (
    <form
      class="restock"
      onSubmit={(event) => {
        event.preventDefault();
        const sign = (event.submitter as HTMLButtonElement | null)?.value === 'cut' ? -1 : 1;
        const units = sign * Number(new FormData(event.currentTarget).get('units'));
        const done = units > 0 ? `${count(units)} added` : `${count(-units)} cut`;
        void act<Sale>({
          ...{ at: placeOf(sale), path: `/sales/${sale.id}/restock`, body: { units }, refresh },
          titleOf: ({ stock }) => `${done}: the stock is ${count(stock)}`,
        });
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
      <button type="submit" class="slim" value="add" aria-disabled={isActing.value}>
        Add
      </button>
      <button type="submit" class="slim" value="cut" aria-disabled={isActing.value}>
        Cut
      </button>
    </form>
  );
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

/** Changes that hold at once: a pause, and the terms of a sale. @returns whether it is changed */
async function change({ sale, list }: Props, body: object, title: string): Promise<boolean> {
  const request = { path: `/sales/${sale.id}`, body, method: 'PATCH', refresh: list.refresh } as const;
  return (await act<Sale>({ at: placeOf(sale), ...request, titleOf: () => title })) !== null;
}

function Pause(props: Props) {
  const { paused } = props.sale;
  return (
    <button
      type="button"
      class="slim"
      aria-disabled={isActing.value}
      onClick={() => change(props, { paused: !paused }, paused ? 'The sale goes on' : 'The sale is paused')}
    >
      {paused ? 'Resume' : 'Pause'}
    </button>
  );
}

const ChangeSale = (props: Props) => (
  <details>
    <summary>Change</summary>
    <SaleForm
      sale={props.sale}
      label="Save the changes"
      onSubmit={(changes) => change(props, changes, 'The sale is changed')}
    />
  </details>
);
