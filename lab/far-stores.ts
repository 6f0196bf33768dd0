/**
 * A network with a known round-trip time between the service and its stores, and a count of the round trips on it: two proxies
 * in another process, which ends with this one.
 */
import { startProgram } from './kit/processes.ts';
import { throughPort } from './proxy.ts';

/** How often a lone attempt waits for a store: alternations of request and answer. */
export interface RoundTrips {
  readonly redis: number;
  readonly postgres: number;
}

export interface FarOptions {
  readonly databaseUrl: string;
  readonly redisUrl: string;
  /** Time added to each round trip to a store, ms; 0: round trips are only counted. */
  readonly rttMs: number;
}

interface Endpoint {
  readonly host: string;
  readonly port: number;
}

/** Each message is answered with its number. */
export interface ToProxies {
  readonly number: number;
  /** Opens a proxy for each. */
  readonly open?: readonly Endpoint[];
  readonly rttMs?: number;
  readonly reset?: boolean;
}
export interface FromProxies {
  readonly kind: 'done';
  readonly number: number;
  readonly ports: readonly number[];
  readonly trips: readonly number[];
}

export type FarStores = Awaited<ReturnType<typeof openFarStores>>;

/** @throws when a URL names no host, or the proxies cannot be started */
export async function openFarStores({ databaseUrl, redisUrl, rttMs }: FarOptions) {
  const open = [endpoint(databaseUrl, 5_432), endpoint(redisUrl, 6_379)];
  const program = startProgram<ToProxies, FromProxies>('proxy-process');
  let orders = 0;
  const order = (what: Omit<ToProxies, 'number'>): Promise<FromProxies> => {
    const number = ++orders;
    program.send({ ...what, number });
    return program.receive((answer): answer is FromProxies => answer.number === number);
  };
  try {
    const [toPostgres, toRedis] = (await order({ open, rttMs })).ports;
    return {
      /** Leads through the proxy; user, database and query are unchanged. */
      databaseUrl: throughPort(databaseUrl, toPostgres!),
      redisUrl: throughPort(redisUrl, toRedis!),
      pid: program.pid,
      died: program.died,
      /** Since the last reset, as `TcpProxy` counts them. */
      async roundTrips(): Promise<RoundTrips> {
        const [postgres = 0, redis = 0] = (await order({})).trips;
        return { redis, postgres };
      },
      reset: async () => void (await order({ reset: true })),
      /** Changes the time added to round trips from now on. */
      delay: async (rttMs: number) => void (await order({ rttMs })),
      [Symbol.asyncDispose]: () => program[Symbol.asyncDispose](),
    };
  } catch (error) {
    await program[Symbol.asyncDispose]();
    throw error;
  }
}

function endpoint(url: string, defaultPort: number): Endpoint {
  const { hostname, port } = new URL(url);
  // The URL of a socket file has no host, and the proxy connects to hosts only.
  if (hostname === '') throw new Error('a network between service and store needs a URL that names a host');
  return { host: hostname.replace(/^\[|\]$/g, ''), port: Number(port) || defaultPort };
}
