/** Charts of the sale that is open, from its own stream: one sample a second, of at most the last three minutes. */
import { signal, useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { Sale, SaleEvent } from '../ui/answers.ts';
import { compact } from '../ui/format.ts';
import { listen } from '../ui/stream.ts';

const SAMPLE_MS = 1_000;
const SHOWN = 180;

/** The sale whose charts are open. */
const opened = signal<number | null>(null);
/** What the stream said last; null: it was cut. */
type Sample = Pick<SaleEvent, 'sold' | 'remaining'> | null;

export function ChartsOf({ sale }: { sale: Sale }) {
  const isOpen = opened.value === sale.id;
  return (
    <details
      open={isOpen}
      onToggle={({ currentTarget }) => {
        if (currentTarget.open) opened.value = sale.id;
        else if (opened.value === sale.id) opened.value = null;
      }}
    >
      <summary>Live, 3 minutes</summary>
      {isOpen && <Charts id={sale.id} />}
    </details>
  );
}

function Charts({ id }: { id: number }) {
  const samples = useSignal<readonly Sample[]>([]);
  useEffect(() => {
    let latest: Sample = null;
    const end = listen<SaleEvent>(`/sales/${id}/events`, '', {
      onEvent: (event) => (latest = event),
      onLive: (isLive) => (latest = isLive ? latest : null),
    });
    const timer = setInterval(() => {
      const isCut = document.visibilityState !== 'visible';
      samples.value = [...samples.value, isCut ? null : latest].slice(-SHOWN);
    }, SAMPLE_MS);
    return () => {
      clearInterval(timer);
      end();
    };
  }, []);
  const sold = samples.value.map((sample, n, all) => {
    const before = all[n - 1];
    return sample && before ? Math.max(0, sample.sold - before.sold) : null;
  });
  const left = samples.value.map((sample) => sample && Math.max(0, sample.remaining));
  return (
    <div class="charts">
      <Chart title="Units sold per second" values={sold} />
      <Chart title="Units left" values={left} />
    </div>
  );
}

/** A line over time, the latest value at the right, with gaps where a value is not known. */
function Chart({ title, values }: { title: string; values: readonly (number | null)[] }) {
  const most = Math.max(1, ...values.map((value) => value ?? 0));
  const from = SHOWN - values.length;
  const path = values.map((value, n) => {
    if (value === null) return '';
    const isStart = (values[n - 1] ?? null) === null;
    return `${isStart ? 'M' : 'L'}${from + n} ${100 - (100 * value) / most}`;
  });
  const last = values.at(-1) ?? null;
  const text = last === null ? '–' : compact(last);
  return (
    <figure class="stack tight">
      <figcaption class="row apart small">
        <span>
          {title} <b>{text}</b>
        </span>
        <span class="soft">max {compact(most)}</span>
      </figcaption>
      <svg
        viewBox={`0 0 ${SHOWN - 1} 100`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`${title}: ${text}`}
      >
        <path d={path.join('')} vector-effect="non-scaling-stroke" />
      </svg>
    </figure>
  );
}
