/** Changes by presses of buttons: one at a time, each with its outcome at its place on the page. */
import { signal } from '@preact/signals';
import type { Answer } from '../ui/answers.ts';
import { Notice } from '../ui/parts.tsx';
import { press } from './token.ts';

/** Such as `new`, `sale 7` and `orders 7`. */
type Place = string;

interface Result {
  readonly at: Place;
  readonly tone: 'good' | 'bad';
  readonly title: string;
  readonly text?: string;
}
/** The outcome of the latest change. */
export const result = signal<Result | null>(null);
/** Whether a change is in progress. */
export const isActing = signal(false);

interface Action<T> {
  readonly at: Place;
  readonly path: string;
  readonly body: object;
  readonly method?: 'PATCH';
  /** What the page says once it is done. */
  readonly titleOf: (changed: T) => string;
  /** Reads again what is changed. */
  readonly refresh: () => Promise<void>;
}

/** Sends a change, unless one is in progress. @returns what it changed; null: it was not sent, or failed */
export async function act<T>({ at, path, body, method, titleOf, refresh }: Action<T>): Promise<T | null> {
  if (isActing.value) return null;
  isActing.value = true;
  const answer = await press<T>(path, body, method);
  show(at, answer, titleOf);
  await refresh();
  isActing.value = false;
  return answer.kind === 'ok' ? answer.body : null;
}

/** Shows the outcome of a request. */
export function show<T>(at: Place, answer: Answer<T>, titleOf: (body: T) => string): void {
  const lost = 'No response came. Check the figures before you try again.';
  result.value =
    answer.kind === 'ok'
      ? { at, tone: 'good', title: titleOf(answer.body) }
      : failed(at, 'The request failed', answer.kind === 'problem' ? answer.detail : lost);
}

export const failed = (at: Place, title: string, text: string): Result => ({ at, tone: 'bad', title, text });

/** Announced by screen readers. */
export function ResultAt({ place }: { place: Place }) {
  const { at, tone = 'bad', title = '', text } = result.value ?? {};
  return (
    <div aria-live="polite">
      {at === place && (
        <Notice tone={tone} title={title}>
          {text}
        </Notice>
      )}
    </div>
  );
}
