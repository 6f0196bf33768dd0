/** Components that pages share, styled by style.css. */
import type { ComponentChildren, RefObject } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { OrderStatus } from '../../domain/order.ts';
import { barClass, type SaleState, saleStates, shownStates } from '../../domain/sale.ts';
import { count } from './format.ts';

export type Tone = 'good' | 'warn' | 'bad' | 'plain';

export function Pill({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return <span class={`pill ${tone}`}>{children}</span>;
}

export function StatePill({ state }: { state: SaleState }) {
  const [tone, text] = shownStates[state];
  return <Pill tone={tone}>{text}</Pill>;
}

export const ORDER_PILLS: Readonly<Record<OrderStatus, readonly [Tone, string]>> = {
  pending: ['warn', 'Reserved'],
  paid: ['good', 'Paid'],
  cancelled: ['plain', 'Cancelled'],
  expired: ['plain', 'Expired'],
  'refund-due': ['bad', 'Refund due'],
};

/** The choices of the select that filters sales. */
export const StateOptions = ({ chosen }: { chosen: SaleState | '' }) => (
  <>
    <option value="">All states</option>
    {saleStates.map((one) => (
      <option key={one} value={one} selected={one === chosen}>
        {shownStates[one][1]}
      </option>
    ))}
  </>
);

/** A message of one or two sentences. Inside a `Live`, screen readers announce it. */
export function Notice({
  tone,
  title,
  children,
}: {
  tone: Tone;
  title: string;
  children?: ComponentChildren;
}) {
  return (
    <div class={`notice ${tone}`}>
      <strong>{title}</strong>
      {children !== undefined && <div>{children}</div>}
    </div>
  );
}

/** A region whose changes screen readers announce when they are idle. */
export function Live({ children }: { children: ComponentChildren }) {
  return (
    <div class="stack" aria-live="polite">
      {children}
    </div>
  );
}

/**
 * Keeps the focus in a section whose parts replace each other: when the focused element is gone, its `h2` gets the focus. Without
 * that, the next press of Tab starts at the top of the page, and screen readers say nothing.
 */
export function useKeptFocus(section: RefObject<HTMLElement | null>): void {
  const last = useRef<Element | null>(null);
  useEffect(() => {
    const remember = ({ target }: FocusEvent) => {
      last.current = target as Element;
    };
    const element = section.current!;
    element.addEventListener('focusin', remember);
    return () => element.removeEventListener('focusin', remember);
  }, []);
  useEffect(() => {
    const isLost = document.activeElement === document.body && last.current?.isConnected === false;
    if (isLost) section.current!.querySelector<HTMLElement>('h2')!.focus({ preventScroll: true });
  });
}

/** A bar for a part of a total. @param isStock the part is what is left of stock or time: the last tenth warns */
export function Bar(props: { label: string; value: number; max: number; isStock?: boolean }) {
  const { label, value, max, isStock = false } = props;
  const shown = Math.min(Math.max(0, value), max);
  return (
    <progress
      class={isStock ? barClass(value, max) : 'bar'}
      aria-label={label}
      value={shown}
      max={Math.max(1, max)}
    >
      {count(shown)}
    </progress>
  );
}

export function Field({
  label,
  hint,
  children,
}: {
  label: string;
  hint?: string;
  children: ComponentChildren;
}) {
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the control is among the children
    <label class="field">
      {label}
      {children}
      {hint !== undefined && <small>{hint}</small>}
    </label>
  );
}
