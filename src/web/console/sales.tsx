/** Sales: create, restock, audit, and the command for a load test. */
import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { stateOf } from '../../domain/sale.ts';
import type { Answer, Sale } from '../ui/api.ts';
import { clock, count, money } from '../ui/format.ts';
import { Bar, Command, Field, Notice, StatePill } from '../ui/parts.tsx';
import { now, serverNow } from '../ui/time.ts';
import { hasRedis } from './live.tsx';
import { asAdmin } from './token.ts';

type Auth = 'none' | 'jwt';
interface Audit {
  readonly saleId: number;
  readonly agrees: boolean;
  readonly differences: readonly string[];
}

const REFRESH_MS = 2_000;
/** Newest sales that the console shows; the API has the others. */
const SHOWN = 20;

const sales = signal<readonly Sale[] | null>(null);
const audits = signal<Readonly<Record<number, Audit | 'running'>>>({});
const failure = signal<string | null>(null);
const isCreating = signal(false);

async function refresh(): Promise<void> {
  if (document.visibilityState !== 'visible') return;
  const answer = await asAdmin<readonly Sale[]>(`/sales?limit=${SHOWN}`);
  if (answer.kind === 'ok') sales.value = answer.body;
}

/** Shows the failure of an administrative request, if any, and refreshes the sales. @returns whether it succeeded */
async function done(answer: Answer<unknown>): Promise<boolean> {
  failure.value =
    answer.kind === 'ok'
      ? null
      : answer.kind === 'lost'
        ? 'No response came. Check the figures below before you try again.'
        : answer.detail;
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
      <div aria-live="polite">
        {failure.value !== null && (
          <Notice tone="bad" title="The request failed">
            {failure.value}
          </Notice>
        )}
      </div>
      {sales.value?.length === 0 && <p class="soft">There is no sale yet.</p>}
      <ul class="rows">
        {sales.value?.map((sale) => (
          <Row key={sale.id} {...{ sale, auth }} />
        ))}
      </ul>
    </section>
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
            <b>{count(sale.sold)} sold</b>
            <span class="soft">
              {count(sale.remaining)} of {count(sale.stock)} left
            </span>
          </span>
          <Bar label={`Units left of ${sale.name}`} value={sale.remaining} max={sale.stock} />
        </div>
        <Restock sale={sale} />
        <button type="button" class="slim" disabled={audit === 'running'} onClick={() => runAudit(sale.id)}>
          {audit === 'running' ? 'Auditing…' : 'Audit'}
        </button>
      </div>
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
        await done(await asAdmin(`/sales/${sale.id}/restock`, { units }));
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
      <button type="submit" class="slim" value="add">
        Add
      </button>
      <button type="submit" class="slim" value="cut">
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
  if (answer.kind !== 'ok') await done(answer);
}

function Verdict({ agrees, differences }: Audit) {
  return agrees ? (
    <Notice tone="good" title="The stores agree">
      Every sold unit has one active order and one points entry
      {hasRedis() && ', and Redis lists the same buyers as Postgres'}.
    </Notice>
  ) : (
    <Notice tone="bad" title="The stores differ">
      <ul>
        {differences.map((one) => (
          <li key={one}>{one}</li>
        ))}
      </ul>
      {hasRedis() && (
        <p>
          <code>npm run reconcile</code> repairs Redis.
        </p>
      )}
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
        if (await done(await asAdmin('/sales', sale))) isCreating.value = false;
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
      <button type="submit" class="primary">
        Create the sale
      </button>
    </form>
  );
}
