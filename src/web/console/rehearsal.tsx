/** A rehearsal: customers that this browser plays buy in a sale that is made for it, is audited, refunded and ended. */
import { useSignal } from '@preact/signals';
import type { Audit, PlacedOrder, Sale } from '../ui/answers.ts';
import { ask } from '../ui/api.ts';
import { count } from '../ui/format.ts';
import { Bar, Field, Live, Notice } from '../ui/parts.tsx';
import { Verdict } from './audit.tsx';
import { refreshSales } from './sales.ts';
import { nowMs } from './time.tsx';
import { asAdmin, press } from './token.ts';

/** A browser has about as many connections to a server. */
const AT_ONCE = 6;
/** Longer than a rehearsal takes. */
const LONGEST_MS = 3_600_000;

interface Course {
  readonly stock: number;
  readonly customers: number;
  /** How many were answered how. */
  readonly answers: Readonly<Record<string, number>>;
  /** Null: customers still buy. */
  readonly audit: Audit | null;
  readonly problem: string | null;
}

export function Rehearsal() {
  const course = useSignal<Course | null>(null);
  const { stock = 0, customers = 0, answers = {}, audit = null, problem = null } = course.value ?? {};
  const answered = Object.values(answers).reduce((sum, n) => sum + n, 0);
  const isRunning = course.value !== null && audit === null && problem === null;
  return (
    <>
      <h2 tabIndex={-1}>Rehearse</h2>
      <p class="small soft">
        Customers buy, once each, in a sale made for it, which the shop shows meanwhile. Then it is audited,
        its orders are cancelled, and it ends. It shows that buying works, not how fast:{' '}
        <code>npm run bench</code> measures that.
      </p>
      <form
        class="new-sale"
        onSubmit={(event) => {
          event.preventDefault();
          const given = new FormData(event.currentTarget);
          if (!isRunning)
            void rehearse(
              Number(given.get('stock')),
              Number(given.get('customers')),
              (now) => (course.value = now),
            );
        }}
      >
        <Field label="Units">
          <input name="stock" type="number" min={1} max={1_000} required defaultValue="100" />
        </Field>
        <Field label="Customers">
          <input name="customers" type="number" min={1} max={2_000} required defaultValue="120" />
        </Field>
        <button type="submit" class="primary" aria-disabled={isRunning}>
          Start the rehearsal
        </button>
      </form>
      {course.value !== null && <Bar label="Customers that are answered" value={answered} max={customers} />}
      <p>
        {Object.entries(answers)
          .map(([answer, n]) => `${count(n)} ${answer}`)
          .join(', ')}
      </p>
      <Live>
        {problem !== null && (
          <Notice tone="bad" title="The rehearsal failed">
            {problem}
          </Notice>
        )}
        {audit !== null && (
          <>
            <Ending {...{ stock, customers, answers }} agrees={audit.agrees} />
            {!audit.agrees && <Verdict {...audit} />}
          </>
        )}
      </Live>
    </>
  );
}

/** Whether it ended as it should have. */
function Ending({
  stock,
  customers,
  answers,
  agrees,
}: Omit<Course, 'audit' | 'problem'> & { agrees: boolean }) {
  const toSell = Math.min(stock, customers);
  const { accepted = 0, 'sold-out': refused = 0 } = answers;
  const isExpected = agrees && accepted === toSell && refused === customers - toSell;
  const expected = `${count(toSell)} sold, ${count(customers - toSell)} refused, audit passed`;
  const title = isExpected ? `As expected: ${expected}` : `Not as expected, which is ${expected}`;
  return <Notice tone={isExpected ? 'good' : 'bad'} title={title} />;
}

async function rehearse(stock: number, customers: number, show: (course: Course) => void): Promise<void> {
  let course: Course = { stock, customers, answers: {}, audit: null, problem: null };
  const update = (more: Partial<Course>) => {
    course = { ...course, ...more };
    show(course);
  };
  update({});
  // The sale ends also when this page is closed before.
  const endsAt = new Date(nowMs() + LONGEST_MS).toISOString();
  const made = await press<Sale>('/sales', { name: 'Rehearsal', stock, priceCents: 100, endsAt });
  if (made.kind !== 'ok') return update({ problem: 'The sale could not be created.' });
  const { id } = made.body;
  let next = 0;
  const buyers = Array.from({ length: AT_ONCE }, async () => {
    while (next < customers) {
      const answer = await ask<PlacedOrder>(`/sales/${id}/orders`, {
        body: { userId: `rehearsal-${id}-${next++}` },
      });
      const word =
        answer.kind === 'ok' ? 'accepted' : answer.kind === 'lost' ? 'without an answer' : answer.slug;
      update({ answers: { ...course.answers, [word]: (course.answers[word] ?? 0) + 1 } });
    }
  });
  await Promise.all(buyers);
  const audited = await asAdmin<Audit>(`/sales/${id}/audit`);
  const ended = await press(`/sales/${id}`, { endsAt: new Date(nowMs()).toISOString() }, 'PATCH');
  const refunded = await press(`/sales/${id}/refund`, { returnUnits: true });
  await refreshSales();
  if (audited.kind === 'ok' && ended.kind === 'ok' && refunded.kind === 'ok') update({ audit: audited.body });
  else update({ problem: `Sale ${id} was not audited, ended and refunded: open it.` });
}
