/** The form of a sale, for a new one and for changes. */
import type { Sale } from '../ui/answers.ts';
import { currency, currencyCode } from '../ui/format.ts';
import { Field } from '../ui/parts.tsx';

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
/** How many of the smallest units are one unit of the currency. */
const unit = 10 ** currency.digits;

/** As an input of type datetime-local has it. */
function localTime(iso: string | null | undefined): string {
  if (iso == null) return '';
  const date = new Date(iso);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

interface Props {
  /** Left out: a new sale, which also has a stock. */
  readonly sale?: Sale;
  readonly label: string;
  /**
   * @param fields of the request's body; of a sale that exists, those that differ
   * @returns true: the sale is changed, and the form shows what it is now
   */
  readonly onSubmit: (fields: object) => Promise<unknown>;
}

function fieldsOf(given: FormData): Record<string, unknown> {
  const instant = (name: string) => {
    const text = String(given.get(name));
    return text === '' ? null : new Date(text).toISOString();
  };
  const seconds = String(given.get('paymentWindowS'));
  return {
    name: String(given.get('name')),
    priceCents: Math.round(Number(given.get('price')) * unit),
    maxPerOrder: Number(given.get('maxPerOrder')),
    paymentWindowS: seconds === '' ? null : Number(seconds),
    startsAt: instant('startsAt'),
    endsAt: instant('endsAt'),
  };
}

/** Instants of the form have no fractions of a second. */
const isSame = (before: unknown, now: unknown): boolean =>
  before === now ||
  (typeof before === 'string' && typeof now === 'string' && localTime(before) === localTime(now));

export function SaleForm({ sale, label, onSubmit }: Props) {
  return (
    <form
      class="new-sale"
      onSubmit={(event) => {
        event.preventDefault();
        const given = new FormData(event.currentTarget);
        const fields = fieldsOf(given);
        if (sale === undefined) return void onSubmit({ ...fields, stock: Number(given.get('stock')) });
        const before = sale as unknown as Record<string, unknown>;
        const changed = Object.entries(fields).filter(([name, value]) =>
          name === 'name' ? value !== before.name : !isSame(before[name], value),
        );
        const form = event.currentTarget;
        // Inputs that were typed into ignore what the sale becomes later, and would be sent again with the next change. What was
        // typed since the button was pressed stays.
        const isSubmitted = () => [...new FormData(form)].every(([name, value]) => given.get(name) === value);
        if (changed.length > 0)
          void onSubmit(Object.fromEntries(changed)).then(
            (isChanged) => isChanged === true && isSubmitted() && form.reset(),
          );
      }}
    >
      <Field label="Name">
        <input name="name" required maxLength={200} defaultValue={sale?.name ?? ''} />
      </Field>
      {sale === undefined && (
        <Field label="Units">
          <input name="stock" type="number" min={0} max={2_147_483_647} required defaultValue="100" />
        </Field>
      )}
      <Field label={currencyCode === '' ? 'Price' : `Price (${currencyCode})`}>
        <input
          name="price"
          type="number"
          min={0}
          max={1_000_000_000 / unit}
          step={1 / unit}
          required
          defaultValue={(sale === undefined ? 49 : sale.priceCents / unit).toFixed(currency.digits)}
        />
      </Field>
      <Terms sale={sale} />
      <button type="submit" class="primary">
        {label}
      </button>
    </form>
  );
}

const Terms = ({ sale }: { sale: Sale | undefined }) => (
  <>
    <Field label="Most units of an order">
      <input
        name="maxPerOrder"
        type="number"
        min={1}
        max={100}
        required
        defaultValue={String(sale?.maxPerOrder ?? 1)}
      />
    </Field>
    <Field label="Seconds to pay" hint="Empty: as PAYMENT_WINDOW_S says">
      <input
        name="paymentWindowS"
        type="number"
        min={1}
        max={31_536_000}
        defaultValue={String(sale?.paymentWindowS ?? '')}
      />
    </Field>
    <Field label="Opens" hint={`Empty: at once. Time in ${zone}`}>
      <input name="startsAt" type="datetime-local" step={1} defaultValue={localTime(sale?.startsAt)} />
    </Field>
    <Field label="Ends" hint={`Empty: never. Time in ${zone}`}>
      <input name="endsAt" type="datetime-local" step={1} defaultValue={localTime(sale?.endsAt)} />
    </Field>
  </>
);
