/** The console for administrators: sales, and the health of the service. */
import { signal } from '@preact/signals';
import { render } from 'preact';
import { useEffect } from 'preact/hooks';
import type { Health } from '../ui/answers.ts';
import { pageData } from '../ui/api.ts';
import { Field, Notice, Pill } from '../ui/parts.tsx';
import { listen } from '../ui/stream.ts';
import { setClock } from '../ui/time.ts';
import { health, Stores, Strategy, Troubles } from './health.tsx';
import { Sales } from './sales.tsx';
import { forget, token } from './token.ts';
import './console.css';

const { needsToken } = pageData<{ readonly needsToken: boolean }>();

type Connection = 'connecting' | 'live' | 'lost' | 'refused';
const connection = signal<Connection>('connecting');

const PILLS = {
  connecting: ['plain', 'Connecting'],
  live: ['good', 'Live'],
  lost: ['warn', 'Reconnecting'],
  refused: ['bad', 'Refused'],
} as const;

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
  const [tone, text] = PILLS[connection.value];
  return (
    <div class="wide console">
      <div class="row apart">
        <h1>Console</h1>
        {hasAccess && (
          <div class="row">
            <Pill tone={tone}>{text}</Pill>
            {needsToken && (
              <button type="button" class="slim" onClick={forget}>
                Sign out
              </button>
            )}
          </div>
        )}
      </div>
      {!hasAccess && <SignIn wasRefused={connection.value === 'refused'} />}
      {hasAccess && connection.value === 'refused' && (
        <Notice tone="bad" title="Only this machine has access">
          No ADMIN_TOKEN is set, and your request came from another machine or through a proxy. Set
          ADMIN_TOKEN to sign in from there.
        </Notice>
      )}
      {hasAccess && connection.value !== 'refused' && (
        <>
          <Troubles />
          <Sales />
          <div class="halves">
            <Stores />
            <Strategy isLive={connection.value === 'live'} />
          </div>
        </>
      )}
    </div>
  );
}

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
