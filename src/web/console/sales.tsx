/** Sales: create, restock, audit, and the command for a load test. */
import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { stateOf } from '../../domain/sale.ts';
import type { Answer, Sale } from '../ui/api.ts';
import { clock, count, dateTime, money } from '../ui/format.ts';
import { Bar, Command, Field, Notice, StatePill } from '../ui/parts.tsx';
import { now, serverNow } from '../ui/time.ts';
import { asAdmin } from './token.ts';

type Auth = 'none' | 'jwt';
interface Audit {
  readonly saleId: number;
  readonly agrees: boolean;
  readonly differences: readonly string[];
  /** Whether Redis has the sale and was compared. */
  readonly isMirrored: boolean;
  readonly auditedAt: string;
}

const REFRESH_MS = 2_000;
/** Newest sales that the console shows at first, and how many more at each press. */
const SHOWN = 20;
const shown = signal(SHOWN);
/** The most that the API lists at once. */
const LONGEST = 1_000;

const sales = signal<readonly Sale[] | null>(null);
const audits = signal<Readonly<Record<number, Audit | 'running'>>>({});
/** A sale, or the form of a new one. */
type Place = number | 'new';
const failure = signal<{ readonly at: Place; readonly text: string } | null>(null);
/** Where a request changes something now. */
const acting = signal<Place | null>(null);
const isCreating = signal(false);

async function refresh(): Promise<void> {
  if (document.visibilityState !== 'visible') return;
  const answer = await asAdmin<readonly Sale[]>(`/sales?limit=${shown.value}`);
  if (answer.kind === 'ok') sales.value = answer.body;
}

/** Changes something, unless another request does. @returns whether it succeeded */
async function act(at: Place, path: string, body: object): Promise<boolean> {
  if (acting.value !== null) return false;
  acting.value = at;
  const isDone = await done(at, await asAdmin(path, body));
  acting.value = null;
  return isDone;
}

/** Shows the failure of a request where it belongs, if any, and refreshes the sales. @returns whether it succeeded */
async function done(at: Place, answer: Answer<unknown>): Promise<boolean> {
  const text =
    answer.kind === 'problem' ? answer.detail : 'No response came. Check the figures before you try again.';
  failure.value = answer.kind === 'ok' ? null : { at, text };
  await refresh();
  return answer.kind === 'ok';
}

export function Sales({ auth }: { auth: Auth }) {
  useEffect(() => {
    void refresh();
    const timer = setInterval(refresh, REFRESH_MS);
    return () => clearInterval(timer);
  }, []);
  return (
    <section class="card stack" aria-label="Sales">
      <div class="row apart">
        <h2>Sales</h2>
        <button
          type="button"
          class="slim"
          aria-expanded={isCreating.value}
          onClick={() => (isCreating.value = !isCreating.value)}
        >
          {isCreating.value ? 'Close' : 'New sale'}
        </button>
      </div>
      {isCreating.value && <NewSale />}
      <Failure at="new" />
      {sales.value?.length === 0 && <p class="soft">There is no sale yet.</p>}
      <ul class="rows">
        {sales.value?.map((sale) => (
          <Row key={sale.id} {...{ sale, auth }} />
        ))}
      </ul>
      {sales.value?.length === shown.value && shown.value < LONGEST && (
        <button
          type="button"
          class="slim"
          onClick={() => {
            shown.value = Math.min(LONGEST, shown.value + SHOWN);
            void refresh();
          }}
        >
          Show older sales
        </button>
      )}
    </section>
  );
}

function Failure({ at }: { at: Place }) {
  return (
    <div aria-live="polite">
      {failure.value?.at === at && (
        <Notice tone="bad" title="The request failed">
          {failure.value.text}
        </Notice>
      )}
    </div>
  );
}

function Row({ sale, auth }: { sale: Sale; auth: Auth }) {
  const state = stateOf(sale, Math.max(now.value, serverNow()));
  const audit = audits.value[sale.id];
  return (
    <li class="stack sale-row">
      <div class="sale-line">
        <div class="sale-name">
          <a href={`/shop/${sale.id}`}>
            <b>{sale.name}</b>
          </a>
          <span class="row">
            <StatePill state={state} />
            <span class="label">
              no. {sale.id} · {money(sale.priceCents)}
              {state === 'scheduled' && ` · opens in ${clock(Date.parse(sale.startsAt!) - now.value)}`}
            </span>
          </span>
        </div>
        <div class="stack tight">
          <span class="row apart small">
            <b>
              {count(sale.sold)} sold
              {sale.remaining < 0 && <span class="bad">, {count(-sale.remaining)} too many</span>}
            </b>
            <span class="soft">
              {count(Math.max(0, sale.remaining))} of {count(sale.stock)} left
            </span>
          </span>
          <Bar label={`Units left of ${sale.name}`} value={sale.remaining} max={sale.stock} />
        </div>
        <Restock sale={sale} />
        <button type="button" class="slim" disabled={audit === 'running'} onClick={() => runAudit(sale.id)}>
          {audit === 'running' ? 'Auditing…' : 'Audit'}
        </button>
      </div>
      <Failure at={sale.id} />
      <div aria-live="polite">{audit !== undefined && audit !== 'running' && <Verdict {...audit} />}</div>
      <details>
        <summary>Load test</summary>
        {auth === 'none' ? (
          <Command text={loadOn(sale.id)} />
        ) : (
          <p class="small soft">
            With AUTH=jwt a purchase needs a ticket. See the cell lua-tickets of the benchmark.
          </p>
        )}
      </details>
    </li>
  );
}

function Restock({ sale }: { sale: Sale }) {
  return (
    <form
      class="restock"
      onSubmit={async (event) => {
        event.preventDefault();
        const form = event.currentTarget;
        const sign = (event.submitter as HTMLButtonElement | null)?.value === 'cut' ? -1 : 1;
        const units = sign * Number(new FormData(form).get('units'));
        await act(sale.id, `/sales/${sale.id}/restock`, { units });
      }}
    >
      <input
        type="number"
        name="units"
        min={1}
        max={1_000_000_000}
        required
        defaultValue="10"
        aria-label={`Units for ${sale.name}`}
      />
      <button type="submit" class="slim" value="add" aria-disabled={acting.value !== null}>
        Add
      </button>
      <button type="submit" class="slim" value="cut" aria-disabled={acting.value !== null}>
        Cut
      </button>
    </form>
  );
}

async function runAudit(saleId: number): Promise<void> {
  const set = (audit: Audit | 'running' | undefined) => {
    const { [saleId]: _before, ...others } = audits.value;
    audits.value = audit === undefined ? others : { ...others, [saleId]: audit };
  };
  set('running');
  const answer = await asAdmin<Audit>(`/sales/${saleId}/audit`);
  set(answer.kind === 'ok' ? answer.body : undefined);
  if (answer.kind !== 'ok') await done(saleId, answer);
}

function Verdict({ agrees, differences, isMirrored, auditedAt }: Audit) {
  const at = (
    <p class="small">
      Audited on <time dateTime={auditedAt}>{dateTime(auditedAt)}</time>.
    </p>
  );
  if (agrees)
    return (
      <Notice tone="good" title={isMirrored ? 'The stores agree' : 'Postgres agrees with itself'}>
        Every sold unit has one active order and one points entry
        {isMirrored && ', and Redis lists the same buyers as Postgres'}.{at}
      </Notice>
    );
  const [first = ''] = differences;
  const isOversold = first.startsWith('Oversold');
  return (
    <Notice tone="bad" title={isOversold ? first : 'The stores differ'}>
      <ul>
        {differences.slice(isOversold ? 1 : 0).map((one) => (
          <li key={one}>{one}</li>
        ))}
      </ul>
      {differences.some((one) => one.includes('Redis')) && (
        <p>
          <code>npm run reconcile</code> repairs Redis.
        </p>
      )}
      {at}
    </Notice>
  );
}

/** The load command of the README, for this sale. */
const loadOn = (saleId: number) =>
  `npx autocannon -c 64 -a 2000 -I -m POST -H 'Content-Type: application/json' \\\n  -b '{"userId":"user-[<id>]"}' ${location.origin}/sales/${saleId}/orders`;

function NewSale() {
  return (
    <form
      class="new-sale"
      onSubmit={async (event) => {
        event.preventDefault();
        const given = new FormData(event.currentTarget);
        const instant = (name: string) => {
          const text = String(given.get(name));
          return text === '' ? {} : { [name]: new Date(text).toISOString() };
        };
        const sale = {
          name: String(given.get('name')),
          stock: Number(given.get('stock')),
          priceCents: Math.round(Number(given.get('price')) * 100),
          ...instant('startsAt'),
          ...instant('endsAt'),
        };
        if (await act('new', '/sales', sale)) isCreating.value = false;
      }}
    >
      <Field label="Name">
        <input name="name" required maxLength={200} />
      </Field>
      <Field label="Units">
        <input name="stock" type="number" min={0} max={2_147_483_647} required defaultValue="100" />
      </Field>
      <Field label="Price">
        <input
          name="price"
          type="number"
          min={0}
          max={10_000_000}
          step="0.01"
          required
          defaultValue="49.00"
        />
      </Field>
      <Field label="Opens" hint="Empty: at once">
        <input name="startsAt" type="datetime-local" step={1} />
      </Field>
      <Field label="Ends" hint="Empty: never">
        <input name="endsAt" type="datetime-local" step={1} />
      </Field>
      <button type="submit" class="primary" aria-disabled={acting.value !== null}>
        Create the sale
      </button>
    </form>
  );
}
