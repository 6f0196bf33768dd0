/** The form of a sale, for a new one and for changes. */

import { moneyIn } from '../../domain/money.ts';
import type { Sale } from '../ui/answers.ts';
import { currencyCode } from '../ui/format.ts';
import { Field } from '../ui/parts.tsx';

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
/** As an input of type datetime-local has it. */
function localTime(iso: string | null | undefined): string {
  if (iso == null) return '';
  const date = new Date(iso);
  return new Date(date.getTime() - date.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
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
  const text = (name: string) => String(given.get(name)).trim();
  const instant = (name: string) => (text(name) === '' ? null : new Date(text(name)).toISOString());
  const seconds = text('paymentWindowS');
  return {
    name: text('name'),
    description: text('description').replaceAll('\r\n', '\n') || null,
    imageUrl: text('imageUrl') || null,
    currency: text('currency'),
    priceCents: Math.round(Number(given.get('price')) * 10 ** moneyIn(text('currency')).digits),
    maxPerOrder: Number(given.get('maxPerOrder')),
    paymentWindowS: seconds === '' ? null : Number(seconds),
    startsAt: instant('startsAt'),
    endsAt: instant('endsAt'),
  };
}

/** Instants of the form are whole minutes. */
const isSame = (before: unknown, now: unknown): boolean =>
  before === now ||
  (typeof before === 'string' && typeof now === 'string' && localTime(before) === localTime(now));

export function SaleForm({ sale, label, onSubmit }: Props) {
  const { digits } = moneyIn(sale?.currency ?? currencyCode);
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
          name.endsWith('At') ? !isSame(before[name], value) : value !== before[name],
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
      <Texts sale={sale} />
      {sale === undefined && (
        <Field label="Units">
          <input name="stock" type="number" min={0} max={2_147_483_647} required defaultValue="100" />
        </Field>
      )}
      <Field label="Price">
        <input
          name="price"
          type="number"
          min={0}
          max={1_000_000_000 / 10 ** digits}
          step="any"
          required
          defaultValue={(sale === undefined ? 49 : sale.priceCents / 10 ** digits).toFixed(digits)}
        />
      </Field>
      <Terms sale={sale} />
      <button type="submit" class="primary">
        {label}
      </button>
    </form>
  );
}

const Texts = ({ sale }: { sale: Sale | undefined }) => (
  <>
    <Field label="Name">
      <input name="name" required maxLength={200} defaultValue={sale?.name ?? ''} />
    </Field>
    <Field label="Description">
      <textarea name="description" rows={3} maxLength={2_000} defaultValue={sale?.description ?? ''} />
    </Field>
    <Field label="Picture: https address" hint="Empty: a placeholder with the name">
      <input name="imageUrl" type="url" maxLength={1_000} defaultValue={sale?.imageUrl ?? ''} />
    </Field>
    <Field label="Currency" hint="Fixed once there are orders">
      <input
        name="currency"
        required
        pattern="[A-Z]{3}"
        maxLength={3}
        defaultValue={sale?.currency ?? currencyCode}
      />
    </Field>
  </>
);

const Terms = ({ sale }: { sale: Sale | undefined }) => (
  <>
    <Field label="Most units per order">
      <input
        name="maxPerOrder"
        type="number"
        min={1}
        max={100}
        required
        defaultValue={String(sale?.maxPerOrder ?? 1)}
      />
    </Field>
    <Field label="Time to pay, seconds" hint="Empty: the service’s default">
      <input
        name="paymentWindowS"
        type="number"
        min={1}
        max={31_536_000}
        defaultValue={String(sale?.paymentWindowS ?? '')}
      />
    </Field>
    <Field label="Opens" hint={`Empty: at once. Time in ${zone}`}>
      <input name="startsAt" type="datetime-local" step={60} defaultValue={localTime(sale?.startsAt)} />
    </Field>
    <Field label="Ends" hint={`Empty: never. Time in ${zone}`}>
      <input name="endsAt" type="datetime-local" step={60} defaultValue={localTime(sale?.endsAt)} />
    </Field>
  </>
);
