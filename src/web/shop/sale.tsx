/** One sale: its picture, price, countdown and stock, and the visitor's order. */
import { useState } from 'preact/hooks';
import {
  isComing,
  isLong,
  isScarce,
  placeholderOf,
  type SaleState,
  stateOf,
  stockText,
} from '../../domain/sale.ts';
import type { Sale } from '../ui/answers.ts';
import { clock, count, money, shortDate } from '../ui/format.ts';
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
      <div class="column">
        <Picture sale={sale} />
        {sale.description !== null && (
          <p class={isLong(sale.description, 160) ? 'about long' : 'about'} dir="auto">
            {sale.description}
          </p>
        )}
      </div>
      <div class="column">
        <section class={`stack product ${saleState}`} aria-label="The sale">
          <h1 dir="auto" class={isLong(sale.name) ? 'long' : undefined}>
            {sale.name}
          </h1>
          <div class="row apart">
            <p class="price">{money(sale.priceCents, sale.currency)}</p>
            <div class="row">
              {!isLive && <Pill tone="plain">Reconnecting</Pill>}
              <span class="row" aria-live="polite">
                <StatePill state={saleState} />
              </span>
            </div>
          </div>
          <Countdown sale={sale} state={saleState} />
          <div class="stack tight">
            <UnitsLeft sale={sale} />
            <p
              class={isScarce(sale, saleState) ? 'stock scarce' : 'stock'}
              key={sale.remaining <= 0 ? 'none' : 'some'}
            >
              {stockText(sale, saleState)}
            </p>
          </div>
        </section>
        <YourOrder state={state.value} dispatch={dispatch} saleState={saleState} />
      </div>
    </div>
  );
};

/** Its space is reserved; a picture that does not load leaves the placeholder. */
export function Picture({ sale: { name, imageUrl } }: { sale: Pick<Sale, 'name' | 'imageUrl'> }) {
  const [failed, setFailed] = useState<string | null>(null);
  const { initials, hue } = placeholderOf(name);
  return (
    <div class={`picture hue-${hue}${imageUrl === null ? ' none' : ''}`}>
      {imageUrl === null || imageUrl === failed ? (
        <span aria-hidden="true">{initials}</span>
      ) : (
        <img
          src={imageUrl}
          alt=""
          width={800}
          height={600}
          referrerpolicy="no-referrer"
          onError={() => setFailed(imageUrl)}
        />
      )}
    </div>
  );
}

/** A sale with a start or an end always has it, so that nothing moves when the sale opens. */
function Countdown({ sale, state }: { sale: Sale; state: SaleState }) {
  if (sale.startsAt === null && sale.endsAt === null) return null;
  const opensLater = isComing(sale, now.value);
  const until = opensLater ? sale.startsAt : state === 'ended' ? null : sale.endsAt;
  const at = until ?? sale.endsAt ?? sale.startsAt!;
  const isOver = until === null;
  const label = isOver ? (state === 'ended' ? 'Ended' : 'Opened') : opensLater ? 'Opens in' : 'Ends in';
  return (
    <div class={isOver ? 'countdown over' : 'countdown'}>
      <p class="label">
        {label} {!isOver && <span class="unseen">({shortDate(at)})</span>}
      </p>
      <p class="numeral" role="timer" aria-live="off">
        {isOver ? shortDate(at) : clock(Date.parse(until) - now.value)}
      </p>
      <p class="label" aria-hidden="true" hidden={isOver}>
        {shortDate(at)}
      </p>
    </div>
  );
}

/** Full at the start, and empty when the sale is sold out. */
export function UnitsLeft({ sale }: { sale: Sale }) {
  return (
    <>
      <Bar label="Units left" value={sale.remaining} max={sale.stock} isStock />
      {sale.remaining < 0 && (
        <p class="small bad">
          {count(-sale.remaining)} units oversold: this strategy is the benchmark’s control.
        </p>
      )}
    </>
  );
}
