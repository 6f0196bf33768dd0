/**
 * Addresses of Postgres, as libpq has them: one server, or several of which the one that accepts writes is used.
 *
 *   postgresql://[user:password@]host[:port]/database[?parameters]
 *   postgresql://[user:password@]host[:port],host[:port]/database?target_session_attrs=read-write
 */
import { type Host, parseHosts } from './hosts.ts';

export interface DatabaseAddress {
  /** The URL of one server: with several in the text, the first, without `target_session_attrs`, as node-postgres knows neither. */
  readonly url: string;
  /** The servers among which the one that accepts writes is used. Empty: `url` names the only one. */
  readonly hosts: readonly Host[];
}

const PORT = 5_432;
const PARTS = /^(postgres(?:ql)?:\/\/(?:[^@/?#]*@)?)([^/?#]*)(\/[^?#]*)?(?:\?([^#]*))?$/;
const WRITES = ['read-write', 'primary'];

/** @returns the address, or what is wrong with the text, without its password */
export function parseDatabaseUrl(text: string): DatabaseAddress | string {
  const [, before = '', list = '', path = '', query = ''] = PARTS.exec(text) ?? [];
  if (before === '') return 'must be a URL starting with postgresql:// or postgres://';
  const [first] = list.split(',');
  const parameters = new URLSearchParams(query);
  const wanted = parameters.get('target_session_attrs');
  parameters.delete('target_session_attrs');
  const isOne = first === list && (wanted ?? 'any') === 'any';
  const url = isOne ? text : `${before}${first}${path}${parameters.size > 0 ? `?${parameters}` : ''}`;
  if (!URL.canParse(url)) return 'must be a URL with percent-encoded user and password';
  if (isOne) return { url, hosts: [] };
  if (wanted !== null && !WRITES.includes(wanted)) {
    return 'has target_session_attrs that a service cannot use: it writes, so it needs read-write';
  }
  const hosts = parseHosts(list, PORT);
  if (typeof hosts === 'string') return `names a server "${hosts}", which must be host or host:port`;
  return { url, hosts };
}
