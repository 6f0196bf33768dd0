/**
 * Addresses of Postgres, as libpq and Prisma have them: one server, or several of which the one that accepts writes is used.
 *
 *   postgresql://[user:password@]host[:port]/database[?parameters]
 *   postgresql://[user:password@]host[:port],host[:port]/database?target_session_attrs=read-write
 *   postgresql://[user:password@]/database?host=/folder/of/the/socket[&port=5432]
 *   …?schema=shop                        the schema of the tables
 *   …?options=-c synchronous_commit=…    settings of each connection; those of the service come after them
 */
import { type Host, parseHosts } from './hosts.ts';

export interface DatabaseAddress {
  /** The URL of one server: with several in the text, the first. It lacks the parameters that the other fields have. */
  readonly url: string;
  /** The servers among which the one that accepts writes is used. Empty: `url` names the only one. */
  readonly hosts: readonly Host[];
  /** Of the tables; null: the first one of the role's search_path. */
  readonly schema: string | null;
  /** Settings of each connection, as the server's command line has them. */
  readonly options: string;
}

const PORT = 5_432;
const PARTS = /^(postgres(?:ql)?:\/\/(?:[^@/?#]*@)?)([^/?#]*)(\/[^?#]*)?(?:\?([^#]*))?$/;
const WRITES = ['read-write', 'primary'];
/** An identifier that needs no escape inside double quotes, and fits Postgres's 63 bytes. */
const SCHEMA = /^\w{1,63}$/;

/** @returns the address, or what is wrong with the text, without its password */
export function parseDatabaseUrl(text: string): DatabaseAddress | string {
  const [, before = '', list = '', path = '', query = ''] = PARTS.exec(text) ?? [];
  if (before === '') return 'must be a URL starting with postgresql:// or postgres://';
  const [first = ''] = list.split(',');
  const parameters = new URLSearchParams(query);
  const take = (name: string): string | null => {
    const value = parameters.get(name);
    parameters.delete(name);
    return value;
  };
  const wanted = take('target_session_attrs');
  const schema = take('schema');
  const options = take('options') ?? '';
  const url = `${before}${first}${path}${parameters.size > 0 ? `?${parameters}` : ''}`;
  // Behind user and password, a URL has a host; with a socket it is a parameter.
  const isSocket = first === list && (parameters.get('host') ?? '').startsWith('/');
  if (!URL.canParse(isSocket && list === '' ? url.replace('@/', '@socket/') : url))
    return 'must be a URL with percent-encoded user and password';
  if (schema !== null && !SCHEMA.test(schema))
    return 'has a schema that is not one word of letters, digits and _';
  if (first === list && (wanted ?? 'any') === 'any') return { url, hosts: [], schema, options };
  if (wanted !== null && !WRITES.includes(wanted))
    return 'has target_session_attrs that a service cannot use: it writes, so it needs read-write';
  const socket = { host: parameters.get('host')!, port: Number(parameters.get('port') ?? PORT) };
  const hosts = isSocket ? [socket] : parseHosts(list, PORT);
  if (typeof hosts === 'string') return `names a server "${hosts}", which must be host or host:port`;
  return { url, hosts, schema, options };
}
