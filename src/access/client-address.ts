/**
 * Which client a request came from. Behind proxies that `TRUSTED_PROXIES` names, it is the last address of X-Forwarded-For that
 * none of them added; anyone can write the ones before it. An IPv6 client counts as its /56, the least that a provider gives a
 * customer.
 */
import type { IncomingMessage } from 'node:http';
import { isIP, type Socket } from 'node:net';
import { ipKeyGenerator } from 'express-rate-limit';
import proxyAddress from 'proxy-addr';

const IPV6_SUBNET = 56;

/** The name under which an address is counted. */
export const clientKey = (address: string): string =>
  ipKeyGenerator(address.replace(/^::ffff:(?=\d+\.)/i, ''), IPV6_SUBNET);

/** Some proxies write `203.0.113.7:4711` or `[2001:db8::1]:4711`. */
const withoutPort = (entry: string): string =>
  entry.replace(/^\[(.+)\](?::\d+)?$|^(\d+(?:\.\d+){3}):\d+$/, '$1$2');

export interface ClientAddresses {
  /** The client of a request. */
  of(req: IncomingMessage): string;
  /** The client of a connection; null: a trusted proxy, which speaks for many. */
  ofSocket(socket: Socket): string | null;
}

const KEY = Symbol('client of a connection');
type KeyedSocket = Socket & { [KEY]?: string };

/** @param trusted addresses and subnets */
export function clientAddresses(trusted: readonly string[]): ClientAddresses {
  const isProxy = trusted.length === 0 ? () => false : proxyAddress.compile([...trusted]);
  const isTrusted = (address: string, hop: number) => isProxy(withoutPort(address), hop);
  const keyOf = (socket: KeyedSocket): string => {
    socket[KEY] ??= clientKey(socket.remoteAddress ?? '');
    return socket[KEY];
  };
  return {
    of(req) {
      if (trusted.length === 0) return keyOf(req.socket);
      // Undefined once the peer has disconnected. If a proxy forwarded no valid address, its own address counts.
      const client = withoutPort(proxyAddress(req, (address, hop) => isTrusted(address ?? '', hop)) ?? '');
      return isIP(client) === 0 ? keyOf(req.socket) : clientKey(client);
    },
    ofSocket(socket) {
      return isTrusted((socket.remoteAddress ?? '').replace(/^::ffff:(?=\d+\.)/i, ''), 0)
        ? null
        : keyOf(socket);
    },
  };
}
