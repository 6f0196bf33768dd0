/** Lists of servers in addresses of Postgres and Redis: `host[:port],host[:port]`. */
export interface Host {
  readonly host: string;
  readonly port: number;
}

/** A host name, an IPv4 address, or an IPv6 address in brackets. */
const HOST = /^(\[[0-9a-fA-F:.]+\]|[^\s:[\],@]+)(?::(\d{1,5}))?$/;

export const isLoopback = (host: string): boolean => /^(localhost|127(\.\d{1,3}){3}|::1)$/.test(host);

/** The address in an IPv6 literal; another host as it is. */
export const withoutBrackets = (host: string) => host.replace(/^\[|\]$/g, '');

/** @returns the servers, or the text of the first that is not valid */
export function parseHosts(list: string, defaultPort: number): readonly Host[] | string {
  const hosts: Host[] = [];
  for (const entry of list.split(',')) {
    const [, host, port = defaultPort] = HOST.exec(entry) ?? [];
    if (host === undefined || Number(port) < 1 || Number(port) > 65_535) return entry;
    hosts.push({ host: withoutBrackets(host), port: Number(port) });
  }
  return hosts;
}

/** The servers and the database of a URL, for messages: without protocol, user, password and parameters. */
export function serversOf(url: string): string {
  const socket = /[?&]host=([^&]*)/.exec(url)?.[1];
  const rest = url.replace(/^[a-z+]+:\/\/(?:[^/]*@)?/, '').replace(/\?.*$/, '');
  return socket === undefined ? rest : `${decodeURIComponent(socket)}${rest}`;
}
