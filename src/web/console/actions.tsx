/** Changes: one at a time, confirmed where units or money go, each with its outcome in the panel. */
import { signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { Answer } from '../ui/answers.ts';
import { Live, Notice } from '../ui/parts.tsx';
import { param } from './address.ts';
import { failureOf } from './list.tsx';
import { press } from './token.ts';

interface Result {
  /** The parameter `open` of its panel. */
  readonly at: string;
  readonly tone: 'good' | 'bad';
  readonly title: string;
  readonly text?: string;
}
/** The outcome of the latest change. */
const result = signal<Result | null>(null);
/** Whether a change is in progress. */
export const isActing = signal(false);

interface Action<T> {
  readonly path: string;
  readonly body: object;
  readonly method?: 'PATCH';
  /** What the page says once it is done; left out: the panel shows it. */
  readonly titleOf?: (changed: T) => string;
  /** Reads again what is changed. */
  readonly refresh: () => Promise<void>;
  /** The panel that says how it ended; left out: the one that is open when it begins. */
  readonly at?: string;
}

/** Sends a change, unless one is in progress. @returns what it changed; null: it was not sent, or failed */
export async function act<T>(action: Action<T>): Promise<T | null> {
  const { path, body, method, titleOf, refresh, at = param('open') } = action;
  if (isActing.value) return null;
  isActing.value = true;
  clear();
  const answer = await press<T>(path, body, method);
  if (answer.kind !== 'ok') failed('The request failed', answer, at);
  await refresh();
  // Last: who reads it sees the figures that follow, and may make the next change.
  if (answer.kind === 'ok' && titleOf) succeeded(titleOf(answer.body), at);
  isActing.value = false;
  return answer.kind === 'ok' ? answer.body : null;
}

/** Ends the outcome of the action before. */
export const clear = () => {
  result.value = null;
};

/** @param at the panel in which what it is about began */
export function succeeded(title: string, at = param('open')): void {
  result.value = { at, tone: 'good', title };
}

/** @param why a sentence, or the answer @param at see `succeeded` */
export function failed(title: string, why: string | Answer<unknown>, at = param('open')): void {
  const lost = 'No response came. Check the figures before you try again.';
  const isBusy = typeof why !== 'string' && why.kind === 'problem' && why.slug === 'busy';
  const failure = typeof why === 'string' ? why : why.kind === 'lost' ? lost : (failureOf(why) ?? '');
  const text = isBusy ? `${failure} Nothing was changed.` : failure;
  result.value = { at, tone: 'bad', title, text };
}

/** The outcome of the latest change of the panel, which screen readers announce. */
export function Outcome() {
  const { at, tone = 'bad', title = '', text } = result.value ?? {};
  return (
    <Live>
      {at === param('open') && (
        <Notice tone={tone} title={title}>
          {text}
        </Notice>
      )}
    </Live>
  );
}

interface Question {
  readonly title: string;
  readonly text: ComponentChildren;
  /** The label of the button that confirms. */
  readonly yes: string;
  /** A checkbox, checked at first. */
  readonly option?: string;
}
const asked = signal<(Question & { resolve(answer: { readonly option: boolean } | null): void }) | null>(
  null,
);

/** Asks before a change. @returns null: not confirmed */
export const confirmed = (question: Question) =>
  new Promise<{ readonly option: boolean } | null>((resolve) => {
    clear();
    asked.value = { ...question, resolve };
  });

export function Confirmation() {
  const dialog = useRef<HTMLDialogElement>(null);
  const question = asked.value;
  useEffect(() => {
    if (question !== null) dialog.current!.showModal();
  }, [question]);
  if (question === null) return null;
  const close = ({ currentTarget }: { currentTarget: HTMLDialogElement }) => {
    const option = currentTarget.querySelector('input')?.checked ?? true;
    asked.value = null;
    question.resolve(currentTarget.returnValue === 'yes' ? { option } : null);
  };
  return (
    <dialog ref={dialog} class="card" aria-labelledby="question" onClose={close}>
      <form method="dialog" class="stack">
        <h2 id="question">{question.title}</h2>
        <p>{question.text}</p>
        {question.option !== undefined && (
          <label class="check">
            <input type="checkbox" defaultChecked />
            {question.option}
          </label>
        )}
        <div class="row">
          <button type="submit" value="yes" class="primary danger">
            {question.yes}
          </button>
          <button type="submit" value="no">
            Go back
          </button>
        </div>
      </form>
    </dialog>
  );
}
