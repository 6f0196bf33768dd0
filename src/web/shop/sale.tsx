/** One sale: countdown, stock, and the visitor's order. */
import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { type SaleState, stateOf } from '../../domain/sale.ts';
import type { Sale, SaleEvent } from '../ui/api.ts';
import { clock, count, dateTime, money } from '../ui/format.ts';
import { Bar, Pill, StatePill } from '../ui/parts.tsx';
import { listen } from '../ui/stream.ts';
import { now, serverNow, setClock } from '../ui/time.ts';
import type { Auth } from './customer.ts';
import { YourOrder } from './order.tsx';

export interface SaleData {
  readonly now: number;
  readonly sale: Sale;
  readonly auth: Auth;
  readonly canPay: boolean;
  readonly proofWorker: string;
}

export const SalePage = ({ data }: { data: SaleData }) => {
  useEffect(() => follow(data.sale), [data]);
  const current: Sale = { ...data.sale, ...latest.value };
  // By the server's clock, so the button is enabled on time rather than with the next event.
  const state = stateOf(current, Math.max(now.value, serverNow()));
  return (
    <div class="wide shop">
      <section class="stack product" aria-label="The sale">
        <div class="row">
          <StatePill state={state} />
          {!isLive.value && <Pill tone="plain">Reconnecting</Pill>}
        </div>
        <h1 dir="auto">{current.name}</h1>
        <p class="price">{money(current.priceCents)}</p>
        <Countdown sale={current} state={state} />
        <Stock sale={current} isMain={state !== 'scheduled'} />
      </section>
      <YourOrder {...data} sale={current} state={state} />
    </div>
  );
};

const latest = signal<Partial<SaleEvent>>({});
const isLive = signal(true);

function follow({ id }: Sale): () => void {
  return listen<SaleEvent>(`/sales/${id}/events`, '', {
    onEvent({ now: serverMs, ...event }) {
      setClock(serverMs);
      latest.value = event;
    },
    onLive(live) {
      isLive.value = live;
    },
  });
}

function Countdown({ sale, state }: { sale: Sale; state: SaleState }) {
  const until = state === 'scheduled' ? sale.startsAt : state === 'open' ? sale.endsAt : null;
  if (until === null) return null;
  const leftMs = Date.parse(until) - now.value;
  const label = state === 'scheduled' ? 'Opens in' : 'Ends in';
  return (
    <div class="countdown">
      <p class="label">
        {label} <span class="unseen">({dateTime(until)})</span>
      </p>
      <p class={state === 'scheduled' ? 'numeral' : 'numeral lesser'} role="timer" aria-live="off">
        {clock(leftMs)}
      </p>
      <p class="label" aria-hidden="true">
        {dateTime(until)}
      </p>
    </div>
  );
}

function Stock({ sale, isMain }: { sale: Sale; isMain: boolean }) {
  const left = Math.max(0, sale.remaining);
  return (
    <div class="stack tight">
      <p>
        <span class={isMain ? 'numeral' : 'numeral lesser'}>{count(left)}</span>{' '}
        <span class="soft">of {count(sale.stock)} left</span>
      </p>
      <Bar label="Units left" value={left} max={sale.stock} />
      {sale.remaining < 0 && (
        <p class="small bad">
          {count(-sale.remaining)} units oversold: this strategy is the benchmark’s control.
        </p>
      )}
    </div>
  );
}
