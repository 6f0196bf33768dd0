/** A list that refreshes while the page is visible: its filter, its length, and what it shows. */
import { type ReadonlySignal, useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';
import { asAdmin } from './token.ts';

const REFRESH_MS = 2_000;
/** The length of a list at first. */
const SHOWN = 20;
/** The most that the API lists at once. */
const LONGEST = 1_000;

export interface List<T> {
  /** Null: not read yet. */
  readonly items: ReadonlySignal<readonly T[] | null>;
  /** Why the latest read failed; null: it did not. */
  readonly failure: ReadonlySignal<string | null>;
  /** The parameters of the API that choose items. */
  readonly filter: ReadonlySignal<Readonly<Record<string, string>>>;
  readonly refresh: () => Promise<void>;
  readonly choose: (name: string, value: string) => void;
  /** Null: the list is complete, or as long as it can be. */
  readonly lengthen: ((by: number) => void) | null;
}

/** @param path of the API */
export function useList<T>(path: string): List<T> {
  const filter = useSignal<Readonly<Record<string, string>>>({});
  const shown = useSignal(SHOWN);
  const items = useSignal<readonly T[] | null>(null);
  const failure = useSignal<string | null>(null);
  const query = () => new URLSearchParams({ limit: String(shown.value), ...filter.value }).toString();
  async function refresh(): Promise<void> {
    const asked = query();
    const answer = await asAdmin<readonly T[]>(`${path}?${asked}`);
    if (asked !== query()) return; // the answer for an earlier filter may come later
    if (answer.kind === 'ok') items.value = answer.body;
    failure.value =
      answer.kind === 'ok' ? null : answer.kind === 'problem' ? answer.detail : 'No response came.';
  }
  usePoll(refresh);
  const choose = (name: string, value: string) => {
    const { [name]: _before, ...others } = filter.value;
    filter.value = value === '' ? others : { ...others, [name]: value };
    shown.value = SHOWN;
    void refresh();
  };
  const lengthen = (by: number) => {
    shown.value = Math.min(LONGEST, shown.value + by);
    void refresh();
  };
  const isFull = items.value?.length === shown.value && shown.value < LONGEST;
  return { items, failure, filter, refresh, choose, lengthen: isFull ? lengthen : null };
}

/** Reads at once, and then from time to time while the page is visible. */
export function usePoll(read: () => Promise<void>): void {
  useEffect(() => {
    void read();
    const timer = setInterval(() => document.visibilityState === 'visible' && read(), REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
}

interface FilterProps {
  readonly list: Pick<List<unknown>, 'choose'>;
  readonly search: { readonly placeholder: string; readonly label: string; readonly maxLength: number };
  /** A parameter of the API with the choices of its values, as options. */
  readonly select: {
    readonly name: string;
    readonly label: string;
    readonly options: ComponentChildren;
  };
  readonly children?: ComponentChildren;
}

export const Filter = ({ list, search, select, children }: FilterProps) => (
  <div class="row filter">
    <input
      type="search"
      maxLength={search.maxLength}
      dir="auto"
      placeholder={search.placeholder}
      aria-label={search.label}
      onInput={({ currentTarget }) => list.choose('search', currentTarget.value.trim())}
    />
    <select
      aria-label={select.label}
      onChange={({ currentTarget }) => list.choose(select.name, currentTarget.value)}
    >
      {select.options}
    </select>
    {children}
  </div>
);

/** A button below a list that lengthens it. */
export const ShowOlder = ({ list, of, by }: { list: List<unknown>; of: string; by: number }) =>
  list.lengthen && (
    <button type="button" class="slim" onClick={() => list.lengthen?.(by)}>
      Show older {of}
    </button>
  );
