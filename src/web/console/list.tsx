/** Lists that refresh while the page is visible. */
import { type ReadonlySignal, useSignal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import type { Answer } from '../ui/answers.ts';
import { Notice } from '../ui/parts.tsx';
import { asAdmin } from './token.ts';

export const REFRESH_MS = 2_000;
/** The most that the API lists at once. */
export const LONGEST = 1_000;

export interface List<T> {
  /** Null: not read yet. */
  readonly items: ReadonlySignal<readonly T[] | null>;
  /** Why the latest read failed; null: it did not. */
  readonly failure: ReadonlySignal<string | null>;
  readonly refresh: () => Promise<void>;
  /** Null: the list is complete, or as long as it can be. */
  readonly lengthen: (() => void) | null;
}

/** @param path of the API @param filter its parameters; empty ones are left out */
export function useList<T>(path: string, filter: Readonly<Record<string, string>> = {}): List<T> {
  const length = useSignal(50);
  const items = useSignal<readonly T[] | null>(null);
  const failure = useSignal<string | null>(null);
  const given = Object.entries(filter).filter(([, value]) => value !== '');
  const url = `${path}?${new URLSearchParams([['limit', String(length.value)], ...given])}`;
  const latest = useRef(url);
  latest.current = url;
  const newest = useMemo(newestOf, []);
  async function refresh(): Promise<void> {
    const asked = latest.current;
    const answer = await newest(asAdmin<readonly T[]>(asked));
    if (answer === null || asked !== latest.current) return; // the answer for an earlier filter may come later
    if (answer.kind === 'ok') items.value = answer.body;
    failure.value = failureOf(answer);
  }
  usePoll(refresh, url);
  const isFull = items.value?.length === length.value && length.value < LONGEST;
  const lengthen = () => (length.value = Math.min(LONGEST, length.value * 4));
  return { items, failure, refresh, lengthen: isFull ? lengthen : null };
}

/** Why a request failed; null: it did not. */
export function failureOf(answer: Answer<unknown>): string | null {
  if (answer.kind === 'ok') return null;
  if (answer.kind === 'lost') return 'No response came.';
  return answer.slug === 'busy' ? 'Postgres or Redis does not answer in time.' : answer.detail;
}

/**
 * Reads at once, when `what` is another, and then from time to time while the page is visible, one read after the other: a browser has
 * few connections to a server, and a change needs one.
 */
export function usePoll(read: () => Promise<void>, what: string): void {
  useEffect(() => {
    let isReading = false;
    const poll = () => {
      if (isReading) return;
      isReading = true;
      void read().finally(() => {
        isReading = false;
      });
    };
    poll();
    const timer = setInterval(() => document.visibilityState === 'visible' && poll(), REFRESH_MS);
    return () => clearInterval(timer);
  }, [what]);
}

/** Passes on the answers of reads; null for one whose successor was answered before it: what it says is older. */
export function newestOf(): <A>(read: Promise<A>) => Promise<A | null> {
  let [begun, answered] = [0, 0];
  return async (read) => {
    const own = ++begun;
    const answer = await read;
    if (own < answered) return null;
    answered = own;
    return answer;
  };
}

/** Says that a list cannot be read. */
export const Unread = ({ failure, what }: { failure: string | null; what: string }) =>
  failure && (
    <Notice tone="bad" title={`The ${what} cannot be read`}>
      {failure} The page tries again; what it shows is from before.
    </Notice>
  );

/** A button below a list that lengthens it. */
export const ShowMore = ({ list }: { list: List<unknown> }) =>
  list.lengthen && (
    <button type="button" class="slim" onClick={list.lengthen}>
      Show more
    </button>
  );
