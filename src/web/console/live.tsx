/** Live figures of the service, and charts of the last three minutes. */
import { signal } from '@preact/signals';
import type { ConsoleEvent as Sent } from '../../metrics/activity.ts';
import { Chart } from '../ui/chart.tsx';
import { compact, dateTime, latency } from '../ui/format.ts';

export type ConsoleEvent = Sent & { readonly now: number };

/** Events that the charts show: one a second. */
const SHOWN = 180;

export const latest = signal<ConsoleEvent | null>(null);
/** A service on Postgres alone has none. */
export const hasRedis = (): boolean => latest.value !== null && 'redis' in latest.value.stores;
/** An instant without an event: the charts have a gap there. */
type Gap = Pick<ConsoleEvent, 'now'> & { readonly isGap: true };
const history = signal<readonly (ConsoleEvent | Gap)[]>([]);
/** Without an event for longer, the stream was cut, milliseconds. */
const GAP_MS = 3_000;

export function record(event: ConsoleEvent): void {
  const before = latest.value?.now ?? event.now;
  const gap: readonly Gap[] = event.now - before > GAP_MS ? [{ now: before + 1_000, isGap: true }] : [];
  latest.value = event;
  history.value = [...history.value, ...gap, event].slice(-SHOWN);
}

const each = (value: (event: ConsoleEvent) => number | null) =>
  history.value.map((event) => ('isGap' in event ? null : value(event)));
const orNone = (text: (n: number) => string, n: number | null | undefined) =>
  n === null || n === undefined ? '–' : text(n);

/** One line of a chart. */
type Line = readonly [label: string, color: string, value: (event: ConsoleEvent) => number | null];

interface PanelProps {
  readonly title: string;
  readonly lines: readonly Line[];
  readonly format: (value: number) => string;
}

const PANELS: readonly PanelProps[] = [
  {
    title: 'Attempts per second',
    lines: [
      ['accepted', '--good', (e) => e.perSecond.accepted],
      ['refused', '--soft', (e) => e.perSecond.refused],
      ['repeated', '--accent', (e) => e.perSecond.replayed],
      ['busy', '--blue', (e) => e.perSecond.busy],
      ['unknown', '--bad', (e) => e.perSecond.unknown],
    ],
    format: compact,
  },
  {
    title: 'Latency',
    lines: [
      ['median', '--blue', (e) => e.p50Ms],
      ['p99', '--accent', (e) => e.p99Ms],
    ],
    format: latency,
  },
  {
    title: 'Queues',
    lines: [
      ['in flight', '--blue', (e) => e.inFlight],
      ['queued for admission', '--accent', (e) => e.queued],
      ['queued for commit', '--soft', (e) => e.commitQueue],
    ],
    format: compact,
  },
  {
    title: 'Batch sizes',
    lines: [
      ['attempts per decision', '--blue', (e) => e.attemptBatch],
      ['orders per commit', '--good', (e) => e.commitBatch],
    ],
    format: compact,
  },
];

/** @param isLive whether events arrive; otherwise the figures are those of the last one */
export function Live({ isLive }: { isLive: boolean }) {
  const event = latest.value;
  const rates = event?.perSecond;
  const isStale = !isLive && event !== null;
  return (
    <section class={`stack${isStale ? ' stale' : ''}`} aria-label="Live figures">
      {isStale && <p class="soft">As of {dateTime(new Date(event.now).toISOString())}.</p>}
      <dl class="tiles">
        <Tile term="Accepted per second" text={orNone(compact, rates?.accepted)} tone="good" />
        <Tile term="Refused per second" text={orNone(compact, rates?.refused)} tone="soft" />
        <Tile
          term="Busy per second"
          text={orNone(compact, rates?.busy)}
          tone={rates !== undefined && rates.busy > 0 ? 'warn' : 'soft'}
        />
        <Tile
          term="Unknown per second"
          text={orNone(compact, rates?.unknown)}
          tone={rates !== undefined && rates.unknown > 0 ? 'bad' : 'soft'}
        />
        <Tile term="Latency, median" text={orNone(latency, event?.p50Ms)} tone="soft" />
        <Tile term="Latency, p99" text={orNone(latency, event?.p99Ms)} tone="soft" />
      </dl>
      <div class="charts">
        {PANELS.map((panel) => (
          <Panel key={panel.title} {...panel} />
        ))}
      </div>
    </section>
  );
}

function Tile({ term, text, tone }: { term: string; text: string; tone: string }) {
  return (
    <div class="card">
      <dt class="label">{term}</dt>
      <dd class={`figure ${tone}`}>{text}</dd>
    </div>
  );
}

/** All lines but the first are dashed, so that color is not the only difference. */
function Panel({ title, lines, format }: PanelProps) {
  const values = lines.map(([, , value]) => each(value));
  const lasts = values.map((line) => orNone(format, line.at(-1)));
  const said = lines.map(([label], i) => `${label} ${lasts[i]}`).join(', ');
  return (
    <figure class="card stack panel">
      <figcaption>
        <h2>{title}</h2>
        <ul class="legend">
          {lines.map(([label, color], i) => (
            <li key={label}>
              <i class={`key ${color.slice(2)}${i > 0 ? ' dashed' : ''}`} />
              {label} <b>{lasts[i]}</b>
            </li>
          ))}
        </ul>
      </figcaption>
      <Chart
        spanS={SHOWN}
        label={`${title}: ${said}`}
        series={lines.map(([label, color], i) => ({ label, color, dashed: i > 0 }))}
        data={[history.value.map((event) => event.now / 1_000), ...values]}
        format={format}
      />
    </figure>
  );
}
