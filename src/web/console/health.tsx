/** Health of the service in a line, and its troubles with advice. A longer history: see the dashboard of Grafana. */
import { signal, useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { Health, Strategies } from '../ui/answers.ts';
import { count } from '../ui/format.ts';
import { Live, Notice, Pill } from '../ui/parts.tsx';
import { CLOSED, hrefOf } from './address.ts';
import { REFRESH_MS, usePoll } from './list.tsx';
import { asAdmin } from './token.ts';

/** Advice for operators when background work fails, by loop. */
const ADVICE: Readonly<Record<string, string>> = {
  expiry:
    'Some orders past their payment window were not closed. The log has the error; the next pass retries them.',
  refunds:
    'Some orders of sales that the shop refunds are not closed yet. The log has the error; the next pass retries them.',
  waitlist: 'Some waitlists have not moved up. The log has the error; the next pass retries them.',
  'reservation-reaper':
    'Abandoned reservations are pending. Check Redis and Postgres, then run npm run reconcile -- --check.',
  'mirror-outbox': 'Redis lacks changes of Postgres. It receives them when it responds again.',
  tasks: 'Tasks wait in Postgres, where they are safe. Check Postgres; the log has the error.',
  receivers:
    'Tasks wait in Postgres, where they are safe. Repair their receiver, or set the variable that is missing, to none if nothing is to be delivered.',
  'audit-log': 'Events are not in the audit log yet. Check Postgres.',
  turns: 'Some expired turns of the waiting room were not deleted. Check Postgres.',
  retention: 'Some old rows were not deleted. A table of yours may refer to them.',
  local: 'The data of the local stores is at risk. Use your own stores.',
};

export const health = signal<Health | null>(null);

export const connection = signal<'connecting' | 'live' | 'lost' | 'refused'>('connecting');
const CONNECTIONS = { connecting: 'Connecting', lost: 'Reconnecting', refused: 'Refused' };

const nameOf = (store: string): string => store[0]!.toUpperCase() + store.slice(1);

/** `5 tasks retried, 1 task dead`; empty: no task fails, and each payment has its order. */
function workText(): string {
  const { retried = 0, dead = 0, unmatched = 0 } = health.value?.work ?? {};
  return [
    [retried, 'task', 'retried'] as const,
    [dead, 'task', 'dead'] as const,
    [unmatched, 'payment', 'unmatched'] as const,
  ]
    .filter(([n]) => n > 0)
    .map(([n, what, how]) => `${count(n)} ${what}${n === 1 ? '' : 's'} ${how}`)
    .join(', ');
}

const TasksLink = () => <a href={hrefOf({ ...CLOSED, open: 'tasks' })}>Show the failed tasks</a>;

type Degraded = Health['degraded'][number];

const Advice = ({ what, detail }: Degraded) => (
  <>
    {ADVICE[what] ?? 'See docs/how-to/recover.md.'} {what === 'receivers' && <TasksLink />}
    <p>
      <code>{detail}</code>
    </p>
  </>
);

/** A store that is down stops many kinds of work: they are one notice. */
const MANY = 3;

function Behind({ all, isDown }: { all: readonly Degraded[]; isDown: boolean }) {
  if (all.length < MANY)
    return all.map((one) => (
      <Notice key={one.what} tone="warn" title={`Degraded: ${one.what}`}>
        <Advice {...one} />
      </Notice>
    ));
  return (
    <Notice tone="warn" title={`${all.length} kinds of work are behind`}>
      {isDown && 'They go on once Postgres and Redis answer.'}
      <details>
        <summary>{all.map(({ what }) => what).join(', ')}</summary>
        {all.map((one) => (
          <div key={one.what}>
            <strong>{one.what}</strong>: <Advice {...one} />
          </div>
        ))}
      </details>
    </Notice>
  );
}

/** What is wrong, with advice. */
export function Troubles() {
  const down = Object.entries(health.value?.stores ?? {}).filter(([, state]) => state !== 'ok');
  return (
    <Live>
      {down.map(([name, state]) => (
        <Notice key={name} tone="bad" title={`${nameOf(name)} does not answer`}>
          Customers see that the shop is busy, or that no response came; no order is lost. Once it runs and
          can be reached, the service connects again.
          <p>
            <code>{state}</code>
          </p>
        </Notice>
      ))}
      {(health.value?.work?.unmatched ?? 0) > 0 && (
        <Notice tone="warn" title="Payments changed no order">
          <code>GET /payments/unmatched</code> lists them with the reason. See docs/how-to/recover.md,
          “StampedePaymentsUnmatched”.
        </Notice>
      )}
      <Behind all={health.value?.degraded ?? []} isDown={down.length > 0} />
    </Live>
  );
}

const strategies = signal<Strategies | null>(null);

/** `Postgres and Redis answer`; `Postgres answers, Redis down`. */
function textOf(stores: readonly (readonly [name: string, state: string])[]): string {
  const those = (isOk: boolean) =>
    stores.filter(([, state]) => (state === 'ok') === isOk).map(([name]) => nameOf(name));
  const verb = those(true).length === 1 ? 'answers' : 'answer';
  const up = those(true).length === 0 ? '' : `${those(true).join(' and ')} ${verb}`;
  const down = those(false).length === 0 ? '' : `${those(false).join(' and ')} down`;
  return [up, down].filter((text) => text !== '').join(', ');
}

export function HealthLine() {
  const isLive = connection.value === 'live';
  useEffect(() => {
    if (!isLive) return; // a service that was started again may have another strategy
    void asAdmin<Strategies>('/strategies').then((answer) => {
      if (answer.kind === 'ok') strategies.value = answer.body;
    });
  }, [isLive]);
  const stores = Object.entries(health.value?.stores ?? {});
  const isWell = stores.every(([, state]) => state === 'ok') && health.value?.degraded.length === 0;
  const work = workText();
  const { retried = 0, dead = 0 } = health.value?.work ?? {};
  const isOpen = useSignal(false);
  return (
    <details class="health" onToggle={({ currentTarget }) => (isOpen.value = currentTarget.open)}>
      <summary>
        {connection.value !== 'live' ? (
          <Pill tone="warn">{CONNECTIONS[connection.value]}</Pill>
        ) : (
          <Pill tone={isWell ? (work === '' ? 'good' : 'warn') : 'bad'}>
            {isWell ? (work === '' ? 'Healthy' : 'Work to do') : 'In trouble'}
          </Pill>
        )}{' '}
        <span>
          {textOf(stores)}
          {strategies.value !== null && ` · ${strategies.value.active}`}
          {work !== '' && ` · ${work}`}
        </span>
      </summary>
      {(retried > 0 || dead > 0) && (
        <p class="small">
          <TasksLink />
        </p>
      )}
      {isOpen.value && <Figures />}
      {strategies.value !== null && <Strategy {...strategies.value} />}
    </details>
  );
}

/** What is read of /metrics: attempts by outcome, their durations by `le`, and what is refused or queued. */
const METRICS =
  /^stampede_(attempts_total|attempt_duration_seconds_bucket|refused_requests_total|admission_queued|commit_queue_orders)(\{.*\})? (\S+)$/gm;

/** The purchases of the last minute, from when it is shown. */
function Figures() {
  /** Sums by `le`, by outcome, or by name. */
  const readings = useSignal<readonly Map<string, number>[]>([]);
  usePoll(async () => {
    const text = await fetch('/metrics').then((response) => response.text(), String);
    const sums = new Map<string, number>();
    for (const [, name = '', labels = '', value] of text.matchAll(METRICS)) {
      const key = (/\ble="([^"]+)/.exec(labels) ?? /outcome="([^"]+)/.exec(labels))?.[1] ?? name;
      sums.set(key, (sums.get(key) ?? 0) + Number(value));
    }
    if (sums.size > 0) readings.value = [...readings.value, sums].slice(-60_000 / REFRESH_MS - 1);
  }, '');
  const [first, last] = [readings.value[0], readings.value.at(-1)];
  if (first === undefined || last === undefined || first === last) return null;
  const since = (key: string): number => Math.max(0, (last.get(key) ?? 0) - (first.get(key) ?? 0));
  const slowest = [...last.keys()].find((le) => Number(le) > 0 && since(le) >= 0.99 * since('+Inf'));
  const queued = (last.get('admission_queued') ?? 0) + (last.get('commit_queue_orders') ?? 0);
  return (
    <p class="small">
      Purchases in the last {((readings.value.length - 1) * REFRESH_MS) / 1_000} s:{' '}
      {['accepted', 'sold-out', 'busy', 'unknown'].map((key) => `${count(since(key))} ${key}, `)}
      {count(since('refused_requests_total'))} refused, {count(queued)} queued
      {since('+Inf') > 0 && ` · 99\u00a0% within ${slowest ?? 'more than 5'} s`}
    </p>
  );
}

function Strategy({ active, lock: lockName, strategies: all, locks }: Strategies) {
  const { summary, store, usesLock } = all.find(({ name }) => name === active)!;
  const lock = usesLock ? locks.find(({ name }) => name === lockName) : undefined;
  return (
    <div class="stack tight small">
      <p>
        Strategy <code>{active}</code>, which decides in {nameOf(store)}. {summary}
      </p>
      {lock !== undefined && (
        <p>
          Under the lock <code>{lock.name}</code>. {lock.summary}
          {lock.flaw !== null && <span class="bad"> Known flaw: {lock.flaw}</span>}
        </p>
      )}
    </div>
  );
}
