/** The state of the service, what to do about it, and what its strategy guarantees. */
import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { Strategies } from '../ui/api.ts';
import { compact, count } from '../ui/format.ts';
import { Notice, Pill } from '../ui/parts.tsx';
import type { ConsoleEvent } from './live.tsx';
import { asAdmin } from './token.ts';

/** What an operator does about background work that fails, by its loop. */
const ADVICE: Readonly<Record<string, string>> = {
  expiry:
    'Orders past their payment window are not closed. Look at the item in the log; the next pass retries it.',
  'reservation-reaper':
    'Abandoned reservations wait. Look at Redis and Postgres; then npm run reconcile -- --check.',
  'mirror-outbox': 'Redis misses changes of Postgres. It gets them when it answers again.',
  'task-dispatcher': 'Tasks wait in Postgres, where they are safe. Look at Redis.',
  'task-worker': 'Tasks are retried. Look at their receiver, and at GET /tasks?state=dead.',
  'audit-log': 'Administrative acts wait to be chained. Look at Postgres.',
  local: 'The data of the local stores is at risk: use stores of your own.',
};

export function Health({ event }: { event: ConsoleEvent | null }) {
  const stores = Object.entries(event?.stores ?? {});
  const tasks = Object.entries(event?.tasks ?? {}).filter(([, n]) => n > 0);
  return (
    <section class="card stack" aria-label="Health">
      <h2>Health</h2>
      <div class="row">
        {stores.map(([name, state]) => (
          <Pill key={name} tone={state === 'ok' ? 'good' : 'bad'}>
            {name[0]!.toUpperCase() + name.slice(1)} {state === 'ok' ? 'answers' : 'does not answer'}
          </Pill>
        ))}
      </div>
      <div class="stack" aria-live="polite">
        {stores
          .filter(([, state]) => state !== 'ok')
          .map(([name, state]) => (
            <Notice key={name} tone="bad" title={`${name} does not answer`}>
              {state}. Purchases get 503 meanwhile and lose nothing. See docs/how-to/recover.md.
            </Notice>
          ))}
        {event?.degraded.map(({ what, detail }) => (
          <Notice key={what} tone="warn" title={`Degraded: ${what}`}>
            {detail}. {ADVICE[what] ?? 'See docs/how-to/recover.md.'}
          </Notice>
        ))}
        {event !== null && event.degraded.length === 0 && stores.every(([, state]) => state === 'ok') && (
          <p class="soft small">Nothing fails. Background work is up to date.</p>
        )}
      </div>
      {event !== null && (
        <dl class="facts">
          <Fact term="Units of drift repaired since the start" text={count(event.driftUnits)} />
          <Fact term="Abandoned reservations resolved" text={count(event.reaped)} />
          <Fact
            term="Open tasks"
            text={tasks.length === 0 ? 'none' : tasks.map(([state, n]) => `${count(n)} ${state}`).join(', ')}
          />
          <Fact term="Concurrency limit" text={count(event.limit)} />
          <Fact term="Processor" text={`${Math.round(event.cpu * 100)} % of a core`} />
          <Fact term="Memory" text={`${compact(event.memoryBytes / 2 ** 20)} MiB`} />
        </dl>
      )}
    </section>
  );
}

const Fact = ({ term, text }: { term: string; text: string }) => (
  <div>
    <dt>{term}</dt>
    <dd>{text}</dd>
  </div>
);

const GUARANTEES: Readonly<Record<keyof Strategies['strategies'][number]['guarantees'], string>> = {
  neverOversells: 'Never sells more than there is',
  neverLoses: 'Never loses a confirmed order',
  onePerCustomer: 'One order for each customer',
  neverStrands: 'Never says “sold out” while a unit is free',
  pointsOnce: 'Points exactly once',
  survivesRedisLoss: 'All of this also when Redis loses its memory',
};

const strategies = signal<Strategies | null>(null);

export function Strategy() {
  useEffect(() => {
    void asAdmin<Strategies>('/strategies').then((answer) => {
      if (answer.kind === 'ok') strategies.value = answer.body;
    });
  }, []);
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
