/** Who changed a sale, and whether its stores agree. */
import { useSignal } from '@preact/signals';
import type { AuditedAct, Audit as Compared } from '../ui/answers.ts';
import { count, dateTime, money } from '../ui/format.ts';
import { Live, Notice } from '../ui/parts.tsx';
import { clear, failed } from './actions.tsx';
import { param } from './address.ts';
import { ShowMore, Unread, useList } from './list.tsx';
import type { SaleProps } from './sales.ts';
import { Time } from './time.tsx';
import { asAdmin } from './token.ts';

export function Audit({ sale: { id, currency } }: SaleProps) {
  const list = useList<AuditedAct>(`/sales/${id}/audit-log`);
  return (
    <>
      <Comparison id={id} />
      <h3>Who did what</h3>
      <Unread failure={list.failure.value} what="audit log" />
      {list.items.value?.length === 0 && <p class="soft">The audit log has no act on this sale.</p>}
      <ul class="rows" aria-label="Who did what">
        {list.items.value?.map((act, n) => (
          <li key={`${act.at} ${n}`} class="order-line small">
            <span>
              <b>{actorOf(act)}</b> {wordsOf(act, currency)}
              {act.status !== null && act.status >= 400 && <span class="bad"> (refused: {act.status})</span>}
            </span>
            <span class="label">
              <Time iso={act.at} text={dateTime(act.at)} />
            </span>
          </li>
        ))}
      </ul>
      <ShowMore list={list} />
    </>
  );
}

/** Without ADMIN_TOKEN, administrators have no names. */
const actorOf = ({ actor }: AuditedAct): string =>
  actor === 'admin:loopback' ? 'An administrator on this machine' : actor.replace('admin:', '');

const TERMS: Readonly<Record<string, string>> = {
  priceCents: 'the price',
  imageUrl: 'the picture',
  maxPerOrder: 'the most units per order',
  paymentWindowS: 'the time to pay, in seconds,',
  startsAt: 'the opening',
  endsAt: 'the end',
  waitlistHoldS: 'the time that the waitlist holds units, in seconds,',
  limitGroup: 'the group of sales with one limit',
  maxPerCustomer: 'the most units per customer',
};

function termText(name: string, value: unknown, currency: string): string {
  const isSet = value !== null && value !== '';
  const text = name === 'priceCents' ? money(Number(value), currency) : String(value);
  return `${TERMS[name] ?? `the ${name}`} to ${!isSet ? 'none' : name.endsWith('At') ? dateTime(text) : text}`;
}

function wordsOf({ action, details, subject }: AuditedAct, currency: string): string {
  const {
    units = 0,
    paused,
    userId = subject,
  } = details as { units?: number; paused?: boolean; userId?: string };
  if (action.endsWith('/restock'))
    return units < 0 ? `cut ${count(-units)} units` : `added ${count(units)} units`;
  if (action.endsWith('/refund')) return 'refunded all orders';
  if (action === 'order.cancelled') return `cancelled the order of ${userId}`;
  if (action === 'order.refund-due') return `asked to refund the order of ${userId}`;
  if (action === 'order.extended') return `extended the order of ${userId}`;
  if (!action.startsWith('PATCH')) return action;
  if (paused !== undefined) return paused ? 'paused the sale' : 'resumed the sale';
  if (JSON.stringify(details) === '{"startsAt":null}') return 'opened the sale';
  return `changed ${Object.entries(details)
    .map(([name, value]) => termText(name, value, currency))
    .join(', ')}`;
}

/** Compares the stores of the sale. */
function Comparison({ id }: { id: number }) {
  const found = useSignal<Compared | 'running' | null>(null);
  const isRunning = found.value === 'running';
  async function compare(): Promise<void> {
    const at = param('open');
    clear();
    found.value = 'running';
    const answer = await asAdmin<Compared>(`/sales/${id}/audit`);
    found.value = answer.kind === 'ok' ? answer.body : null;
    if (answer.kind !== 'ok') failed('The audit failed', answer, at);
  }
  return (
    <>
      <div class="row apart">
        <h3>Do the stores agree?</h3>
        <button type="button" class="slim" disabled={isRunning} onClick={compare}>
          {isRunning ? 'Auditing…' : 'Audit now'}
        </button>
      </div>
      <Live>{found.value !== null && found.value !== 'running' && <Verdict {...found.value} />}</Live>
    </>
  );
}

export function Verdict({ agrees, differences, isMirrored, auditedAt }: Compared) {
  const at = (
    <>
      {' '}
      Audited at <Time iso={auditedAt} />.
    </>
  );
  if (agrees)
    return (
      <Notice tone="good" title={isMirrored ? 'The stores agree' : 'The figures in Postgres agree'}>
        The units sold are those of the reserved and paid orders, and each order has its entries of points
        {isMirrored && '; Redis has the same buyers as Postgres'}.{at}
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
        <>
          <code>npm run reconcile</code> repairs Redis.
        </>
      )}
      {at}
    </Notice>
  );
}
