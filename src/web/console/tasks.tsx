/** Tasks that fail: which, why, and what an operator can do. */
import type { Task } from '../ui/answers.ts';
import { count } from '../ui/format.ts';
import { act, confirmed, isActing } from './actions.tsx';
import { ShowMore, Unread, useList } from './list.tsx';
import { distance, Time } from './time.tsx';

export const Tasks = () => (
  <>
    <h2>Failed tasks</h2>
    <Failed
      state="dead"
      title="Given up"
      hint="Their effect on your systems has not happened. Repair the receiver, then retry them."
    />
    <Failed state="retry" title="To be tried again" hint="The service repeats them by itself." />
  </>
);

function Failed({ state, title, hint }: { state: 'dead' | 'retry'; title: string; hint: string }) {
  const list = useList<Task>('/tasks', { state });
  const { items, failure, refresh } = list;
  const retry = ({ id }: Task): Promise<unknown> =>
    act({ path: `/tasks/${id}/retry`, body: {}, titleOf: () => `Task ${id} is to be tried again`, refresh });
  async function discard({ id, kind }: Task): Promise<void> {
    const text =
      kind === 'event'
        ? 'The receiver never gets this event. It gets the later ones of the same order or sale.'
        : 'It ends without its effect, which is then yours to bring about. The audit log keeps what it was.';
    const question = { title: `Discard task ${id}?`, text, yes: 'Discard the task' };
    if ((await confirmed(question)) === null) return;
    await act({ path: `/tasks/${id}/discard`, body: {}, titleOf: () => `Task ${id} is discarded`, refresh });
  }
  return (
    <section class="stack tight" aria-label={title}>
      <h3>{title}</h3>
      <Unread failure={failure.value} what="tasks" />
      <p class="small soft">{items.value?.length === 0 ? 'None.' : hint}</p>
      <ul class="rows">
        {items.value?.map((task) => (
          <li key={task.id} class="order-line">
            <b>{nameOf(task)}</b>
            {state === 'dead' && (
              <span class="row">
                {Object.entries({ Retry: retry, 'Discard…': discard }).map(([verb, change]) => (
                  <button
                    key={verb}
                    type="button"
                    class="slim"
                    aria-label={`${verb.replace('…', '')} task ${task.id}`}
                    aria-disabled={isActing.value}
                    onClick={() => change(task)}
                  >
                    {verb}
                  </button>
                ))}
              </span>
            )}
            <Story task={task} />
          </li>
        ))}
      </ul>
      <ShowMore list={list} />
    </section>
  );
}

/** `refund`, `event order.paid`. */
const nameOf = ({ kind, payload }: Task): string =>
  `${kind} ${(payload as { readonly type?: string }).type ?? ''}`;

function Story({ task: { id, key, attempts, lastError, runAt, updatedAt, state } }: { task: Task }) {
  return (
    <div class="label">
      <p class="small bad">{lastError ?? 'No error is known.'}</p>
      <code>{key ?? `task:${id}`}</code>
      <p>
        task {id} · {count(attempts)} {attempts === 1 ? 'attempt' : 'attempts'} · failed{' '}
        <Time iso={updatedAt} text={distance(updatedAt)} />
        {state === 'retry' && (
          <>
            , next <Time iso={runAt} text={distance(runAt)} />
          </>
        )}
      </p>
    </div>
  );
}
