/**
 * Addresses of Postgres, as libpq has them: one server, or several of which the one that accepts writes is used.
 *
 *   postgresql://[user:password@]host[:port]/database[?parameters]
 *   postgresql://[user:password@]host[:port],host[:port]/database?target_session_attrs=read-write
 */
export interface DatabaseHost {
  readonly host: string;
  readonly port: number;
}

export interface DatabaseAddress {
  /** Of one server. With several in the text: of the first, without `target_session_attrs`, as node-postgres knows neither. */
  readonly url: string;
  /** The servers among which the one that accepts writes is used. Empty: `url` names the only one. */
  readonly hosts: readonly DatabaseHost[];
}

const PORT = 5_432;
const PARTS = /^(postgres(?:ql)?:\/\/(?:[^@/?#]*@)?)([^/?#]*)(\/[^?#]*)?(?:\?([^#]*))?$/;
/** A host name, an IPv4 address, or an IPv6 address in brackets. */
const HOST = /^(\[[0-9a-fA-F:.]+\]|[^\s:[\],@]+)(?::(\d{1,5}))?$/;
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
  const hosts: DatabaseHost[] = [];
  for (const entry of list.split(',')) {
    const [, host, port = PORT] = HOST.exec(entry) ?? [];
    if (host === undefined || Number(port) < 1 || Number(port) > 65_535) {
      return `names a server "${entry}", which must be host or host:port`;
    }
    hosts.push({ host: host.replace(/^\[|\]$/g, ''), port: Number(port) });
  }
  return { url, hosts };
}
