/**
 * Addresses of Redis, in the forms that Lettuce and redis-py users know:
 *
 *   redis://[user:password@]host[:port][/db]                                one server
 *   redis+sentinel://[user:password@]host[:port],host[:port]/service[/db]   the primary that the Sentinels name
 *   redis+cluster://[user:password@]host[:port],host[:port]                 a cluster, some of whose servers are named
 *
 * rediss://, rediss+sentinel:// and rediss+cluster:// use TLS. User and password are those of the Redis servers; percent-encode
 * special characters.
 */
import { type Host, parseHosts } from './hosts.ts';

interface RedisServers {
  readonly hosts: readonly Host[];
  readonly tls: boolean;
  readonly username: string | null;
  readonly password: string | null;
}

export interface SentinelAddress extends RedisServers {
  readonly kind: 'sentinel';
  /** The name under which the Sentinels monitor the primary. */
  readonly service: string;
  readonly db: number;
}

export interface ClusterAddress extends RedisServers {
  readonly kind: 'cluster';
}

export type RedisAddress =
  | { readonly kind: 'server'; readonly url: string }
  | SentinelAddress
  | ClusterAddress;

const PORTS = { sentinel: 26_379, cluster: 6_379 };
const NAMES = { sentinel: 'Sentinel', cluster: 'server' };
const FORMS =
  'redis://host:port/db, redis+sentinel://host:port,host:port/service/db or redis+cluster://host:port,host:port (rediss for TLS)';
const PARTS = /^(rediss?)\+(sentinel|cluster):\/\/(?:([^@/]*)@)?([^/?#]*)(?:\/([^/?#]*)(?:\/(\d+))?)?\/?$/;

/** @returns the address, or what is wrong with the text, without its password */
export function parseRedisUrl(text: string): RedisAddress | string {
  if (/^rediss?:\/\//.test(text)) {
    const valid = URL.canParse(text) && new URL(text).hostname !== '';
    return valid ? { kind: 'server', url: text } : `must be ${FORMS}`;
  }
  const parts = PARTS.exec(text);
  if (parts === null) return `must be ${FORMS}`;
  const [, protocol, , credentials, list = '', service = '', db = '0'] = parts;
  const kind = parts[2] as 'sentinel' | 'cluster';
  const hosts = parseHosts(list, PORTS[kind]);
  if (typeof hosts === 'string') return `names a ${NAMES[kind]} "${hosts}", which must be host or host:port`;
  if (kind === 'sentinel' && service === '')
    return 'must name the service that the Sentinels monitor: …/mymaster';
  if (kind === 'cluster' && service !== '') return 'names a database, and a cluster has none';
  const [username, password] = credentialsOf(credentials);
  if (username === undefined) return 'has a user or password that is not percent-encoded';
  const servers = { hosts, tls: protocol === 'rediss', username, password };
  return kind === 'cluster' ? { kind, ...servers } : { kind, ...servers, service, db: Number(db) };
}

/** Undefined: it cannot be decoded. */
function credentialsOf(text: string | undefined): [string | null | undefined, string | null] {
  if (text === undefined || text === '') return [null, null];
  const at = text.indexOf(':');
  try {
    const [user, password] = at === -1 ? ['', text] : [text.slice(0, at), text.slice(at + 1)];
    return [decodeURIComponent(user) || null, decodeURIComponent(password)];
  } catch {
    return [undefined, null];
  }
}
