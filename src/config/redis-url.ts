/**
 * Addresses of Redis, in the forms that Lettuce and redis-py users know:
 *
 *   redis://[user:password@]host[:port][/db]                                one server
 *   redis+sentinel://[user:password@]host[:port],host[:port]/service[/db]   the primary that the Sentinels name
 *
 * rediss:// and rediss+sentinel:// use TLS. User and password are those of the Redis servers; percent-encode special characters.
 */
export interface RedisHost {
  readonly host: string;
  readonly port: number;
}

export type RedisAddress =
  | { readonly kind: 'server'; readonly url: string }
  | {
      readonly kind: 'sentinel';
      readonly sentinels: readonly RedisHost[];
      /** The name under which the Sentinels monitor the primary. */
      readonly service: string;
      readonly db: number;
      readonly tls: boolean;
      readonly username: string | null;
      readonly password: string | null;
    };

const SENTINEL_PORT = 26_379;
const FORMS = 'redis://host:port/db or redis+sentinel://host:port,host:port/service/db (rediss for TLS)';
const PARTS = /^(rediss?)\+sentinel:\/\/(?:([^@/]*)@)?([^/?#]*)(?:\/([^/?#]*)(?:\/(\d+))?)?\/?$/;
/** A host name, an IPv4 address, or an IPv6 address in brackets. */
const HOST = /^(\[[0-9a-fA-F:.]+\]|[^\s:[\],@]+)(?::(\d{1,5}))?$/;

/** @returns the address, or what is wrong with the text, without its password */
export function parseRedisUrl(text: string): RedisAddress | string {
  if (/^rediss?:\/\//.test(text)) {
    const valid = URL.canParse(text) && new URL(text).hostname !== '';
    return valid ? { kind: 'server', url: text } : `must be ${FORMS}`;
  }
  const parts = PARTS.exec(text);
  if (parts === null) return `must be ${FORMS}`;
  const [, protocol, credentials, list = '', service = '', db = '0'] = parts;
  const sentinels: RedisHost[] = [];
  for (const entry of list.split(',')) {
    const [, host, port = SENTINEL_PORT] = HOST.exec(entry) ?? [];
    if (host === undefined || Number(port) < 1 || Number(port) > 65_535) {
      return `names a Sentinel "${entry}", which must be host or host:port`;
    }
    sentinels.push({ host: host.replace(/^\[|\]$/g, ''), port: Number(port) });
  }
  if (service === '') return 'must name the service that the Sentinels monitor: …/mymaster';
  const [username, password] = credentialsOf(credentials);
  if (username === undefined) return 'has a user or password that is not percent-encoded';
  return {
    kind: 'sentinel',
    sentinels,
    service,
    db: Number(db),
    tls: protocol === 'rediss',
    username,
    password,
  };
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

/** The servers and the database of a URL, for messages: without protocol, user, password and parameters. */
export function serversOf(url: string): string {
  return url.replace(/^[a-z+]+:\/\/(?:[^/]*@)?/, '').replace(/\?.*$/, '');
}
