/** One sale: countdown, stock, and the visitor's order. */
import { type SaleState, stateOf } from '../../domain/sale.ts';
import type { Sale } from '../ui/answers.ts';
import { clock, count, dateTime, money } from '../ui/format.ts';
import { Bar, Pill, StatePill } from '../ui/parts.tsx';
import { now, serverNow } from '../ui/time.ts';
import type { Page } from './effects.ts';
import { YourOrder } from './order.tsx';

export const SalePage = ({ page: { state, dispatch } }: { page: Page }) => {
  const { sale, isLive } = state.value;
  // By the server's clock, so the button is enabled on time rather than with the next event.
  const saleState = stateOf(sale, Math.max(now.value, serverNow()));
  return (
    <div class="wide shop">
      <section class="stack product" aria-label="The sale">
        <div class="row">
          <StatePill state={saleState} />
          {!isLive && <Pill tone="plain">Reconnecting</Pill>}
        </div>
        <h1 dir="auto">{sale.name}</h1>
        <p class="price">{money(sale.priceCents, sale.currency)}</p>
        <Countdown sale={sale} state={saleState} />
        <Stock sale={sale} isMain={saleState !== 'scheduled'} />
      </section>
      <YourOrder state={state.value} dispatch={dispatch} saleState={saleState} />
    </div>
  );
};

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
