/** The console for administrators: a table of sales, the one that is open, and the health of the service. */
import { render } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import type { Health, Sale } from '../ui/answers.ts';
import { pageData } from '../ui/api.ts';
import { Field, Notice } from '../ui/parts.tsx';
import { listen } from '../ui/stream.ts';
import { setClock } from '../ui/time.ts';
import { act, Confirmation, Outcome, succeeded } from './actions.tsx';
import { adjust, CLOSED, go, hrefOf, param } from './address.ts';
import { connection, HealthLine, health, Troubles } from './health.tsx';
import { Rehearsal } from './rehearsal.tsx';
import { SalePanel } from './sale.tsx';
import { SaleForm } from './sale-form.tsx';
import { refreshSales } from './sales.ts';
import { Sales } from './table.tsx';
import { Tasks } from './tasks.tsx';
import { forget, token } from './token.ts';
import './console.css';

const { needsToken } = pageData<{ readonly needsToken: boolean }>();

function follow(): () => void {
  connection.value = 'connecting';
  return listen<Health>('/console/events', token.value, {
    onEvent(event) {
      setClock(event.now);
      health.value = event;
    },
    onLive(isLive, status) {
      if (status === 401) forget();
      connection.value = isLive ? 'live' : status === 403 || status === 401 ? 'refused' : 'lost';
    },
  });
}

function Console() {
  const hasAccess = !needsToken || token.value !== '';
  useEffect(() => (hasAccess ? follow() : undefined), [token.value]);
  const isRefused = connection.value === 'refused';
  return (
    <div class="wide console">
      <div class="row apart">
        <h1>Console</h1>
        {hasAccess && !isRefused && <HealthLine />}
        {hasAccess && needsToken && (
          <button type="button" class="slim" onClick={forget}>
            Sign out
          </button>
        )}
      </div>
      {!hasAccess && <SignIn wasRefused={isRefused} />}
      {hasAccess && isRefused && (
        <Notice tone="bad" title="Only this machine has access">
          No ADMIN_TOKEN is set, and your request came from another machine or through a proxy. Set
          ADMIN_TOKEN to sign in from there.
        </Notice>
      )}
      {hasAccess && !isRefused && <Board />}
    </div>
  );
}

function Board() {
  const open = param('open');
  const panel = useRef<HTMLElement>(null);
  const before = useRef(open);
  useEffect(() => {
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, []);
  // Without that, the next press of Tab starts at the top of the page.
  useEffect(() => {
    const rowLink = document.querySelector<HTMLElement>(`a[href$="open=${before.current}"]`);
    if (open !== '') panel.current?.focus({ preventScroll: true });
    else if (before.current !== '') rowLink?.focus();
    before.current = open;
  }, [open]);
  return (
    <>
      <Troubles />
      <div class={`board${open === '' ? '' : ' has-panel'}`}>
        <Sales />
        {open !== '' && (
          <section class="card stack panel" ref={panel} tabIndex={-1} aria-label="Details" key={open}>
            <a class="button slim close" href={hrefOf(CLOSED)} aria-label="Close" title="Close (Escape)">
              ✕
            </a>
            <Outcome />
            <Part open={open} />
          </section>
        )}
      </div>
      <Confirmation />
    </>
  );
}

/** @param open the address's parameter: a part of the console, or the id of a sale */
function Part({ open }: { open: string }) {
  if (open === 'new') return <NewSale />;
  if (open === 'rehearsal') return <Rehearsal />;
  return open === 'tasks' ? <Tasks /> : <SalePanel id={open} />;
}

/** `/` searches, arrows walk along the rows, Enter opens, Escape closes. */
function onKey(event: KeyboardEvent): void {
  const target = event.target as HTMLElement;
  const search = document.getElementById('search') as HTMLInputElement | null;
  const isTyping = target.matches('input, select, textarea');
  if (event.ctrlKey || event.metaKey || event.altKey || target.closest('dialog')) return;
  if (event.key === 'Escape') {
    const form = target.closest('.panel form');
    if (target === search && search.value !== '') adjust({ search: '' });
    // What is typed stays; the next press closes the panel.
    else if (form) form.closest<HTMLElement>('.panel')!.focus({ preventScroll: true });
    else if (param('open') !== '') go(CLOSED);
    else target.blur();
  } else if (event.key === '/' && !isTyping) search?.focus();
  else if (
    /^Arrow(Up|Down)$/.test(event.key) &&
    (target === search || !isTyping) &&
    !target.closest('.panel')
  ) {
    const links = [...document.querySelectorAll<HTMLElement>('.sales tbody a')];
    links[links.indexOf(target) + (event.key === 'ArrowDown' ? 1 : -1)]?.focus();
  } else return;
  event.preventDefault();
}

const NewSale = () => (
  <>
    <h2>New sale</h2>
    <SaleForm
      label="Create the sale"
      onSubmit={async (body) => {
        const titleOf = ({ id }: Sale) => `Sale no. ${id} is created`;
        const created = await act<Sale>({ path: '/sales', body, titleOf, refresh: refreshSales });
        if (created === null || param('open') !== 'new') return;
        succeeded(titleOf(created), String(created.id));
        go({ ...CLOSED, open: created.id });
      }}
    />
  </>
);

function SignIn({ wasRefused }: { wasRefused: boolean }) {
  return (
    <form
      class="card stack sign-in"
      onSubmit={(event) => {
        event.preventDefault();
        token.value = String(new FormData(event.currentTarget).get('token')).trim();
      }}
    >
      <h2>Sign in</h2>
      <Field
        label="Administrator’s token"
        hint="A token of ADMIN_TOKEN, without its name. This tab keeps it in memory only."
      >
        <input type="password" name="token" required autocomplete="off" />
      </Field>
      <div aria-live="polite">{wasRefused && <Notice tone="bad" title="That token is not accepted" />}</div>
      <button type="submit" class="primary large">
        Sign in
      </button>
    </form>
  );
}

const app = document.getElementById('app')!;
app.replaceChildren();
render(<Console />, app);
