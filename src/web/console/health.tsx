/** Health of the service, with advice, and the guarantees of its strategy. Rates, latencies and queues: see the dashboard of Grafana. */
import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { Health, Strategies } from '../ui/answers.ts';
import { Live, Notice, Pill } from '../ui/parts.tsx';
import { asAdmin } from './token.ts';

/** Advice for operators when background work fails, by loop. */
const ADVICE: Readonly<Record<string, string>> = {
  expiry:
    'Some orders past their payment window were not closed. The log has the error; the next pass retries them.',
  'reservation-reaper':
    'Abandoned reservations are pending. Check Redis and Postgres, then run npm run reconcile -- --check.',
  'mirror-outbox': 'Redis lacks changes of Postgres. It receives them when it responds again.',
  tasks: 'Tasks wait in Postgres, where they are safe. Check Postgres; the log has the error.',
  receivers:
    'Tasks wait in Postgres, where they are safe. Set the variable, or set it to none if nothing is to be delivered.',
  'audit-log': 'Events are not in the audit log yet. Check Postgres.',
  turns: 'Some expired turns of the waiting room were not deleted. Check Postgres.',
  retention: 'Some old rows were not deleted. A table of yours may refer to them.',
  local: 'The data of the local stores is at risk. Use your own stores.',
};

export const health = signal<Health | null>(null);
/** A service on Postgres alone has none. */
const hasRedis = (): boolean => health.value !== null && 'redis' in health.value.stores;

/** What is wrong, with advice. */
export function Troubles() {
  return (
    <Live>
      {Object.entries(health.value?.stores ?? {})
        .filter(([, state]) => state !== 'ok')
        .map(([name, state]) => (
          <Notice key={name} tone="bad" title={`${nameOf(name)} does not answer`}>
            {state}. Purchases that need it get 503; no order is lost. See docs/how-to/recover.md.
          </Notice>
        ))}
      {health.value?.degraded.map(({ what, detail }) => (
        <Notice key={what} tone="warn" title={`Degraded: ${what}`}>
          {detail}. {ADVICE[what] ?? 'See docs/how-to/recover.md.'}
        </Notice>
      ))}
    </Live>
  );
}

const nameOf = (store: string): string => store[0]!.toUpperCase() + store.slice(1);

export function Stores() {
  if (health.value === null) return null;
  const { degraded } = health.value;
  const stores = Object.entries(health.value.stores);
  return (
    <section class="card stack" aria-label="Health">
      <h2>Health</h2>
      <div class="row">
        {stores.map(([name, state]) => (
          <Pill key={name} tone={state === 'ok' ? 'good' : 'bad'}>
            {nameOf(name)} {state === 'ok' ? 'answers' : 'does not answer'}
          </Pill>
        ))}
      </div>
      {degraded.length === 0 && stores.every(([, state]) => state === 'ok') && (
        <p class="soft small">All stores respond. Background work is up to date.</p>
      )}
    </section>
  );
}

const GUARANTEES: Readonly<Record<keyof Strategies['strategies'][number]['guarantees'], string>> = {
  neverOversells: 'Never oversells',
  neverLoses: 'Never loses a confirmed order',
  onePerCustomer: 'One order per customer',
  neverStrands: 'Never says “sold out” while a unit is free',
  pointsOnce: 'Points exactly once',
  survivesRedisLoss: 'All of this even if Redis loses its data',
};

const strategies = signal<Strategies | null>(null);

/** @param isLive whether events arrive: a service that was started again may have another strategy */
export function Strategy({ isLive }: { isLive: boolean }) {
  useEffect(() => {
    if (!isLive) return;
    void asAdmin<Strategies>('/strategies').then((answer) => {
      if (answer.kind === 'ok') strategies.value = answer.body;
    });
  }, [isLive]);
  if (strategies.value === null) return null;
  const { active, lock: lockName, strategies: all, locks } = strategies.value;
  const strategy = all.find(({ name }) => name === active)!;
  const lock = strategy.usesLock ? locks.find(({ name }) => name === lockName) : undefined;
  return (
    <section class="card stack" aria-label="Strategy">
      <div class="row apart">
        <h2>
          Strategy <code>{active}</code>
        </h2>
        <span class="label">decides in {strategy.store === 'redis' ? 'Redis' : 'Postgres'}</span>
      </div>
      <p class="small soft">{strategy.summary}</p>
      <ul class="checks">
        {Object.entries(GUARANTEES).map(([key, text]) => {
          if (key === 'survivesRedisLoss' && !hasRedis()) return null;
          const holds = strategy.guarantees[key as keyof typeof GUARANTEES];
          return (
            <li key={key} class={holds ? 'yes' : 'no'}>
              <span class="unseen">{holds ? 'Yes: ' : 'No: '}</span>
              {text}
            </li>
          );
        })}
      </ul>
      {lock !== undefined && (
        <>
          <h3>
            Under the lock <code>{lock.name}</code>
          </h3>
          <p class="small soft">{lock.summary}</p>
          {lock.flaw !== null && (
            <Notice tone="warn" title="Known flaw">
              {lock.flaw}
            </Notice>
          )}
        </>
      )}
    </section>
  );
}
