/** Who changed a sale, and whether its stores agree. */
import { useSignal } from '@preact/signals';
import type { AuditedAct, Audit as Compared } from '../ui/answers.ts';
import { count } from '../ui/format.ts';
import { Live, Notice } from '../ui/parts.tsx';
import { failed } from './actions.tsx';
import { ShowMore, Unread, useList } from './list.tsx';
import type { SaleProps } from './sales.ts';
import { Time } from './time.tsx';
import { asAdmin } from './token.ts';

export function Audit({ sale: { id } }: SaleProps) {
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
              <b>{act.actor.replace('admin:', '')}</b> {wordsOf(act)}
              {act.status !== null && act.status >= 400 && <span class="bad"> (refused: {act.status})</span>}
            </span>
            <span class="soft">
              <Time iso={act.at} />
            </span>
          </li>
        ))}
      </ul>
      <ShowMore list={list} />
    </>
  );
}

function wordsOf({ action, details, subject }: AuditedAct): string {
  const {
    units = 0,
    paused,
    userId = subject,
  } = details as { units?: number; paused?: boolean; userId?: string };
  if (action.endsWith('/restock'))
    return units < 0 ? `cut ${count(-units)} units` : `added ${count(units)} units`;
  if (action.endsWith('/refund')) return 'refunded all orders';
  if (action === 'order.cancelled') return `cancelled the order of ${userId}`;
  if (action === 'order.refund-due') return `refunded the order of ${userId}`;
  if (action === 'order.extended') return `extended the order of ${userId}`;
  if (!action.startsWith('PATCH')) return action;
  if (paused !== undefined) return paused ? 'paused the sale' : 'resumed the sale';
  return `changed ${Object.entries(details)
    .map(([name, value]) => `${name} to ${value}`)
    .join(', ')}`;
}

/** Compares the stores of the sale. */
function Comparison({ id }: { id: number }) {
  const found = useSignal<Compared | 'running' | null>(null);
  const isRunning = found.value === 'running';
  async function compare(): Promise<void> {
    found.value = 'running';
    const answer = await asAdmin<Compared>(`/sales/${id}/audit`);
    found.value = answer.kind === 'ok' ? answer.body : null;
    if (answer.kind !== 'ok') failed('The audit failed', answer);
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
        <>
          <code>npm run reconcile</code> repairs Redis.
        </>
      )}
      {at}
    </Notice>
  );
}
