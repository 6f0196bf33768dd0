/** The sale that is open: its figures live, its stock, its terms. */
import { type Signal, useSignal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import { stateOf } from '../../domain/sale.ts';
import type { Sale, SaleEvent } from '../ui/answers.ts';
import { count, money, shortDate } from '../ui/format.ts';
import { Bar, Field, Notice, StatePill } from '../ui/parts.tsx';
import { listen } from '../ui/stream.ts';
import { act, confirmed, failed, isActing, succeeded } from './actions.tsx';
import { hrefOf, param } from './address.ts';
import { Audit } from './audit.tsx';
import { Chart } from './chart.tsx';
import { failureOf, newestOf, usePoll } from './list.tsx';
import { Orders } from './orders.tsx';
import { SaleForm } from './sale-form.tsx';
import { ratesOf, refreshSales, type SaleProps } from './sales.ts';
import { distance, nowMs, Time } from './time.tsx';
import { asAdmin } from './token.ts';
import { Waitlist } from './waitlist.tsx';

const TABS = {
  Stock,
  Orders,
  Waitlist,
  Terms,
  Audit,
} satisfies Record<string, (props: SaleProps & { readonly event: SaleEvent | null }) => unknown>;

/** What the sale's own stream sent last; null: it was cut. */
function useLive(id: string): SaleEvent | null {
  const latest = useSignal<SaleEvent | null>(null);
  useEffect(() => {
    const take = (event: SaleEvent | null) => (latest.value = event);
    const onLive = (isLive: boolean) => void (isLive || take(null));
    return listen<SaleEvent>(`/sales/${id}/events`, '', { onEvent: take, onLive });
  }, []);
  return latest.value;
}

/** @param id of the address */
export function SalePanel({ id }: { id: string }) {
  const read = useSignal<Sale | null>(null);
  const failure = useSignal<string | null>(null);
  const event = useLive(id);
  const newest = useMemo(newestOf, []);
  const refreshSale = async () => {
    const answer = await newest(asAdmin<Sale>(`/sales/${id}`));
    if (answer === null) return;
    failure.value = failureOf(answer);
    if (answer.kind === 'ok') read.value = answer.body;
  };
  usePoll(refreshSale, '');
  const refresh = async () => void (await Promise.all([refreshSale(), refreshSales()]));
  if (read.value === null)
    return (
      failure.value && (
        <Notice tone="bad" title={`Sale ${id} cannot be read`}>
          {failure.value}
        </Notice>
      )
    );
  const sale = read.value;
  const tab = param('tab') in TABS ? (param('tab') as keyof typeof TABS) : 'Stock';
  const Tab = TABS[tab];
  return (
    <>
      <Head {...{ sale, refresh }} />
      <nav class="tabs" aria-label="Parts of the sale">
        {Object.keys(TABS).map((name) => (
          <a key={name} href={hrefOf({ tab: name })} aria-current={name === tab ? 'page' : undefined}>
            {name}
          </a>
        ))}
      </nav>
      <Tab {...{ sale, refresh, event }} />
    </>
  );
}

/** The link shows a colleague the same. */
async function copyLink(): Promise<void> {
  const at = param('open');
  try {
    await navigator.clipboard.writeText(location.href);
    succeeded('The link is copied', at);
  } catch {
    failed('The browser does not copy the link', 'Copy the address of this page.', at);
  }
}

function Head({ sale, refresh }: SaleProps) {
  const state = stateOf(sale, nowMs());
  const { id, name, priceCents, currency, paused, startsAt, endsAt, maxPerOrder } = sale;
  const titleOf = () => (paused ? 'The sale goes on' : 'The sale is paused');
  async function openNow(): Promise<void> {
    const question = { title: `Open ${name} now?`, text: 'Customers can buy at once.', yes: 'Open the sale' };
    if ((await confirmed(question)) === null) return;
    const [body, titleOf] = [{ startsAt: null }, () => 'The sale is open'];
    await act({ path: `/sales/${id}`, method: 'PATCH', body, titleOf, refresh });
  }
  return (
    <>
      <h2 tabIndex={-1} dir="auto">
        {name}
      </h2>
      <div class="row apart head">
        <StatePill state={state} />
        <button type="button" class="slim" onClick={copyLink}>
          Copy link
        </button>
        {state === 'scheduled' && (
          <button type="button" class="slim" aria-disabled={isActing.value} onClick={openNow}>
            Open now…
          </button>
        )}
        {state !== 'ended' && (
          <button
            type="button"
            class="slim"
            aria-disabled={isActing.value}
            onClick={() =>
              act({ path: `/sales/${id}`, method: 'PATCH', body: { paused: !paused }, titleOf, refresh })
            }
          >
            {paused ? 'Resume' : 'Pause'}
          </button>
        )}
      </div>
      <p class="label">
        <a href={`/shop/${id}`}>no. {id} in the shop</a> · {money(priceCents, currency)}
        {maxPerOrder > 1 && ` · up to ${maxPerOrder} per order`}
        {startsAt !== null && state === 'scheduled' && (
          <>
            {' '}
            · opens {distance(startsAt)}, <Time iso={startsAt} text={shortDate(startsAt)} />
          </>
        )}
        {endsAt !== null && (
          <>
            {' '}
            · {state === 'ended' ? 'ended' : 'ends'} {distance(endsAt)},{' '}
            <Time iso={endsAt} text={shortDate(endsAt)} />
          </>
        )}
      </p>
    </>
  );
}

function Stock({ sale, refresh, event }: SaleProps & { readonly event: SaleEvent | null }) {
  const live = { ...sale, ...event };
  return (
    <>
      <div class="stack tight">
        <span class="row apart">
          <b>
            {count(live.sold)} sold
            {live.remaining < 0 && <span class="bad">, {count(-live.remaining)} too many</span>}
          </b>
          <span class="soft">
            {count(Math.max(0, live.remaining))} of {count(live.stock)} left
          </span>
        </span>
        <Bar label={`Units left of ${live.name}`} value={live.remaining} max={live.stock} isStock />
      </div>
      <Chart title="Units sold per second" values={ratesOf(sale.id)} />
      <ChangeStock sale={live} refresh={refresh} />
    </>
  );
}

/** Adds or cuts units, after a preview; a cut is confirmed. */
function ChangeStock({ sale, refresh }: SaleProps) {
  const isCut = useSignal(false);
  const given = useSignal('');
  const { stock, sold, id, name } = sale;
  const units = Number(given.value) * (isCut.value ? -1 : 1);
  const preview = `${count(stock)} → ${count(stock + units)}, ${count(sold)} sold, ${count(stock + units - sold)} left`;
  const isBelow = isCut.value && stock + units < sold;
  const verb = isCut.value ? 'Cut' : 'Add';
  async function submit(): Promise<void> {
    const text = given.value;
    const question = {
      title: `Cut ${count(-units)} units of ${name}?`,
      text: `Stock ${preview}.`,
      yes: `Cut ${count(-units)}`,
    };
    if (isCut.value && (await confirmed(question)) === null) return;
    const done = `${count(Math.abs(units))} ${isCut.value ? 'cut' : 'added'}`;
    const titleOf = (changed: Sale) => `${done}: the stock is ${count(changed.stock)}`;
    const changed = await act<Sale>({ path: `/sales/${id}/restock`, body: { units }, refresh, titleOf });
    // What was typed since then stays.
    if (changed !== null && given.value === text) given.value = '';
  }
  return (
    <form
      class="change-stock stack tight"
      onSubmit={(event) => {
        event.preventDefault();
        if (!isBelow) void submit();
      }}
    >
      <h3>Change the stock</h3>
      <div class="row">
        <Direction isCut={isCut} />
        <Field label="Units">
          <input
            type="number"
            min={1}
            max={1_000_000_000}
            required
            value={given.value}
            onInput={({ currentTarget }) => (given.value = currentTarget.value)}
          />
        </Field>
        <button type="submit" aria-disabled={isActing.value || isBelow}>
          {units === 0 ? verb : `${verb} ${count(Math.abs(units))}`}
          {isCut.value && '…'}
        </button>
      </div>
      <p class="small" aria-live="polite">
        {isBelow ? (
          <span class="bad">
            {count(sold)} are sold: at most {count(Math.max(0, stock - sold))} can be cut.
          </span>
        ) : (
          units !== 0 && `Stock ${preview}`
        )}
      </p>
    </form>
  );
}

const Direction = ({ isCut }: { isCut: Signal<boolean> }) => (
  <fieldset class="plain row">
    <legend class="unseen">Direction</legend>
    {[false, true].map((cut) => (
      <label class="check" key={String(cut)}>
        <input
          type="radio"
          name="direction"
          checked={isCut.value === cut}
          onChange={() => (isCut.value = cut)}
        />
        {cut ? 'Cut units' : 'Add units'}
      </label>
    ))}
  </fieldset>
);

function Terms({ sale, refresh }: SaleProps) {
  const titleOf = () => 'The sale is changed';
  return (
    <SaleForm
      sale={sale}
      label="Save the changes"
      onSubmit={async (body) =>
        (await act({ path: `/sales/${sale.id}`, method: 'PATCH', body, titleOf, refresh })) !== null
      }
    />
  );
}
