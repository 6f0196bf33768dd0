/** Who waits for units of a sale. */
import type { WaitlistEntry } from '../ui/answers.ts';
import { count } from '../ui/format.ts';
import { Pill } from '../ui/parts.tsx';
import { ShowMore, Unread, useList } from './list.tsx';
import type { SaleProps } from './sales.ts';
import { Time } from './time.tsx';

export function Waitlist({ sale: { id } }: SaleProps) {
  const list = useList<WaitlistEntry>(`/sales/${id}/waitlist`);
  const { items, failure } = list;
  return (
    <>
      <Unread failure={failure.value} what="waitlist" />
      {items.value?.length === 0 && (
        <p class="soft">Nobody waits. Customers can join when the units are sold out.</p>
      )}
      <ol class="rows" aria-label="Waiting customers">
        {items.value?.map(({ userId, quantity, joinedAt, place, namedAt }) => (
          <li key={userId} class="order-line">
            <span class="row">
              <b>{userId}</b>
              {place === null ? <Pill tone="good">Named</Pill> : <Pill tone="plain">Place {place}</Pill>}
            </span>
            <span class="small soft">
              {count(quantity)} wanted, joined <Time iso={joinedAt} />
              {namedAt !== null && (
                <>
                  , named <Time iso={namedAt} />
                </>
              )}
            </span>
          </li>
        ))}
      </ol>
      <ShowMore list={list} />
    </>
  );
}
