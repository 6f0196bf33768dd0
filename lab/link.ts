/**
 * The way from the service to its stores as a network with a known round-trip time, and a count of the round trips on it:
 * two proxies in a process (link-proxy.ts), which ends with this one.
 */
import { type Started, startProgram } from './kit/processes.ts';

/** How often a lone attempt waits for a store: requests and answers that alternate. */
export interface RoundTrips {
  readonly redis: number;
  readonly postgres: number;
}

export interface LinkOptions {
  readonly databaseUrl: string;
  readonly redisUrl: string;
  /** What each round trip to a store takes in addition, ms; 0: it is only counted. */
  readonly rttMs: number;
}

export interface Link extends Pick<Started, 'pid' | 'died'>, AsyncDisposable {
  /** Through the proxy; user, database and query are those that were given. */
  readonly databaseUrl: string;
  readonly redisUrl: string;
  /**
   * Since the last reset: on each connection, an answer counts that is the first after a request. A pipeline is one; two
   * connections at the same time are two; what has not been answered yet is none.
   */
  roundTrips(): Promise<RoundTrips>;
  reset(): Promise<void>;
  /** Changes what round trips take in addition from now on. */
  delay(rttMs: number): Promise<void>;
}

export interface Endpoint {
  readonly host: string;
  readonly port: number;
}

/** The first message opens the proxies. Each is answered with its number. */
export interface ToProxy {
  readonly number: number;
  readonly open?: { readonly postgres: Endpoint; readonly redis: Endpoint };
  readonly delayMs?: number;
  readonly reset?: boolean;
}
export interface FromProxy {
  readonly kind: 'done';
  readonly number: number;
  readonly ports: RoundTrips;
  readonly trips: RoundTrips;
}

/** @throws when a URL names no host, or the proxies cannot be started */
export async function openLink({ databaseUrl, redisUrl, rttMs }: LinkOptions): Promise<Link> {
  const open = { postgres: endpoint(databaseUrl, 5_432), redis: endpoint(redisUrl, 6_379) };
  const program = startProgram<ToProxy, FromProxy>('lab/link-proxy.ts');
  let orders = 0;
  const order = (what: Omit<ToProxy, 'number'>): Promise<FromProxy> => {
    const number = ++orders;
    program.send({ ...what, number });
    return program.receive((answer): answer is FromProxy => answer.number === number);
  };
  try {
    const { ports } = await order({ open, delayMs: rttMs });
    return {
      databaseUrl: through(databaseUrl, ports.postgres),
      redisUrl: through(redisUrl, ports.redis),
      pid: program.pid,
      died: program.died,
      roundTrips: async () => (await order({})).trips,
      reset: async () => void (await order({ reset: true })),
      delay: async (delayMs) => void (await order({ delayMs })),
      [Symbol.asyncDispose]: () => program[Symbol.asyncDispose](),
    };
  } catch (error) {
    await program[Symbol.asyncDispose]();
    throw error;
  }
}

function endpoint(url: string, defaultPort: number): Endpoint {
  const { hostname, port } = new URL(url);
  // A socket file has no host, and nothing on a machine is farther away than a proxy on it.
  if (hostname === '') throw new Error('a network between service and store needs a URL that names a host');
  return { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port) || defaultPort };
}

function through(url: string, port: number): string {
  const changed = new URL(url);
  changed.host = `127.0.0.1:${port}`;
  return changed.href;
}
