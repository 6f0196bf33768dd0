/** Limits for each client address, before a request is read: its requests a second, and its connections at once. */
import type { EventEmitter } from 'node:events';
import type { RequestListener, Server } from 'node:http';
import type { ClientAddresses } from '../access/client-address.ts';
import type { TokenBuckets } from '../access/token-buckets.ts';
import { problemReply } from './problems.ts';
import { send } from './purchase/listener.ts';

export interface ClientLimits {
  readonly addresses: ClientAddresses;
  /** Null: no limit. */
  readonly requests: TokenBuckets | null;
  /** 0: no limit. */
  readonly connections: number;
  readonly onLimited: (
    limit: 'address-rate' | 'address-connections' | 'connections' | 'unread-responses',
  ) => void;
}

const TOO_MANY = problemReply('too-many-requests', 'Too many requests of this address. Retry in a second.');
const REPLY = { ...TOO_MANY, headers: [...TOO_MANY.headers, 'Retry-After', '1'] };

/** A load balancer may share its address with the customers whom it probes the service for. */
const PROBES = ['/healthz', '/readyz'];

/** Passes requests to `listener` as long as their address has not exceeded its rate; probes always. */
export function limitRequests(
  listener: RequestListener,
  { addresses, requests, onLimited }: ClientLimits,
): RequestListener {
  if (requests === null) return listener;
  return (req, res) => {
    if (PROBES.includes(req.url!) || requests.take(addresses.of(req))) return listener(req, res);
    onLimited('address-rate');
    send(res, REPLY);
  };
}

/**
 * Counts what each address has open.
 * @returns a function that counts one thing more until it closes; false: the address has `most` already
 */
export function openPerAddress(most: number): (address: string, one: EventEmitter) => boolean {
  const open = new Map<string, number>();
  return (address, one) => {
    const count = (open.get(address) ?? 0) + 1;
    if (count > most) return false;
    open.set(address, count);
    one.once('close', () => {
      const left = open.get(address)! - 1;
      if (left === 0) open.delete(address);
      else open.set(address, left);
    });
    return true;
  };
}

/** Closes connections above the limit of one address. Node closes those above the limit of the process. */
export function limitConnections(server: Server, { addresses, connections, onLimited }: ClientLimits): void {
  server.on('drop', () => onLimited('connections'));
  if (connections === 0) return;
  const isWithin = openPerAddress(connections);
  server.on('connection', (socket) => {
    const client = addresses.ofSocket(socket);
    if (client === null || isWithin(client, socket)) return;
    onLimited('address-connections');
    socket.destroy();
  });
}
