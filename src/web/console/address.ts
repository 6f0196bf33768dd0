/** What the console shows, as parameters in the fragment of its address, so that a link shows the same. */
import { signal } from '@preact/signals';

/**
 * `open`: the id of a sale, `new`, `rehearsal` or `tasks`; `tab` of that sale; `find` and `status`: its orders; `search`, `state` and `sort`: the
 * table. Left out: empty.
 */
type Name = 'open' | 'tab' | 'find' | 'status' | 'search' | 'state' | 'sort';
type Changes = Readonly<Partial<Record<Name, string | number>>>;

const read = () => new URLSearchParams(location.hash.slice(1));
const address = signal(read());
addEventListener('hashchange', () => (address.value = read()));

export const param = (name: Name): string => address.value.get(name) ?? '';

/** The address with other parameters. */
export function hrefOf(changes: Changes): string {
  const next = new URLSearchParams(address.value);
  for (const [name, value] of Object.entries(changes))
    if (value === '') next.delete(name);
    else next.set(name, String(value));
  return `#${next}`;
}

/** Another page in the browser's history. */
export function go(changes: Changes): void {
  location.hash = hrefOf(changes);
}

/** The same page in the browser's history, such as while a search is typed. */
export function adjust(changes: Changes): void {
  history.replaceState(null, '', hrefOf(changes));
  address.value = read();
}

/** What is open, and what belongs to it. */
export const CLOSED: Changes = { open: '', tab: '', find: '', status: '' };
