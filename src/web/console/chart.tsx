/** Lines over time, drawn from the right: the latest value, with gaps where a value is not known. */
import { useSignal } from '@preact/signals';
import { compact } from '../ui/format.ts';
import { REFRESH_MS } from './list.tsx';

/** Samples of three minutes. */
export const SAMPLES = 180_000 / REFRESH_MS;

/** A value per sample; null: not known. */
export type Series = readonly (number | null)[];

interface LineProps {
  readonly values: Series;
  /** How many values fill the width. */
  readonly length: number;
  readonly label: string;
  /** The value under the pointer, from the left; null: none. */
  readonly onPoint?: (n: number | null) => void;
}

export function Line({ values, length, label, onPoint }: LineProps) {
  const shown = values.slice(-length);
  const most = Math.max(1, ...shown.map((value) => value ?? 0));
  const from = length - shown.length;
  const path = shown.map((value, n) => {
    if (value === null) return '';
    const isStart = (shown[n - 1] ?? null) === null;
    return `${isStart ? 'M' : 'L'}${from + n} ${100 - (100 * value) / most}`;
  });
  const point = (event: PointerEvent): void => {
    const { left, width } = (event.currentTarget as Element).getBoundingClientRect();
    onPoint?.(Math.round(((event.clientX - left) / width) * (length - 1)) - from);
  };
  return (
    <svg
      class="line"
      viewBox={`0 0 ${length - 1} 100`}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
      onPointerMove={point}
      onPointerLeave={() => onPoint?.(null)}
    >
      <path d={path.join('')} vector-effect="non-scaling-stroke" />
    </svg>
  );
}

/** A line with its title, the latest value or the one under the pointer, and its greatest. */
export function Chart({ title, values }: { title: string; values: Series }) {
  const length = Math.min(SAMPLES, Math.max(SAMPLES / 6, values.length)); // begins with half a minute
  const pointed = useSignal<number | null>(null);
  const shown = values.slice(-length);
  const at = pointed.value !== null && shown[pointed.value] != null ? pointed.value : shown.length - 1;
  const text = shown[at] == null ? '–' : compact(shown[at]);
  const agoS = Math.round(((shown.length - 1 - at) * REFRESH_MS) / 1_000);
  const most = Math.max(0, ...shown.map((value) => value ?? 0));
  const span = (samples: number) => `last ${spanText(samples * REFRESH_MS)}`;
  const known = shown.filter((value) => value !== null).length;
  return (
    <figure class="chart">
      <figcaption class="row apart small">
        <span>
          {title} <b>{text}</b>
          {agoS > 0 && <span class="soft"> {agoS} s ago</span>}
        </span>
        {most > 0 && (
          <span class="soft">
            {span(length)}, peak {compact(most)}
          </span>
        )}
      </figcaption>
      {most > 0 ? (
        <Line {...{ values, length, label: `${title}: ${text}`, onPoint: (n) => (pointed.value = n) }} />
      ) : (
        <p class="line small soft">{known === 0 ? 'No figures' : `No sales in the ${span(known)}`}</p>
      )}
    </figure>
  );
}

const spanText = (ms: number): string =>
  ms < 60_000 ? `${Math.round(ms / 1_000)} s` : `${Math.round(ms / 6_000) / 10} min`;
