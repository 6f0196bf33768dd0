/**
 * The way from the service to its stores as a network with a known round-trip time, and a count of the round trips on
 * it: two proxies in a process of their own (proxy.ts), which ends with this one, however it ends.
 */
import { startProgram } from '../processes.ts';
import type { RoundTrips } from '../result.ts';

export interface LinkOptions {
  readonly databaseUrl: string;
  readonly redisUrl: string;
  /** What each round trip to a store is to take in addition, ms; 0: it is only counted. */
  readonly rttMs: number;
}

export interface Link extends AsyncDisposable {
  /** Postgres by way of the proxy; user, database and query are those that were given. */
  readonly databaseUrl: string;
  /** Redis by way of the proxy. */
  readonly redisUrl: string;
  /** The process of the proxies. */
  readonly pid: number;
  /** What each round trip takes in addition now, ms. */
  readonly rttMs: number;
  /** Fires when the proxies end before they were told to. */
  readonly died: AbortSignal;
  /**
   * Since the last reset: on each connection, an answer counts that is the first after a request. What is pipelined is
   * one; two connections at the same time are two; what has not been answered yet is none.
   */
  roundTrips(): Promise<RoundTrips>;
  /** Counts from zero: what connections sent to introduce themselves is forgotten. */
  reset(): Promise<void>;
  /** Changes what the round trips of requests from now on take in addition. */
  delay(rttMs: number): Promise<void>;
}

/** Where a server listens. */
export interface Endpoint {
  readonly host: string;
  readonly port: number;
}

type Order =
  | { readonly do: 'count' }
  | { readonly do: 'reset' }
  | { readonly do: 'delay'; readonly rttMs: number };
/** `open` comes first, and once. */
export type ToProxy =
  | { readonly do: 'open'; readonly postgres: Endpoint; readonly redis: Endpoint }
  | (Order & { readonly number: number });
/** What was done: the ports that the proxies listen on, or the trips until then. */
export type FromProxy =
  | { readonly done: 'open'; readonly postgres: number; readonly redis: number }
  | { readonly done: Order['do']; readonly number: number; readonly trips: RoundTrips };

const answerMs = 10_000;

/** @throws when a URL names no host, or the proxies cannot be started */
export async function openLink(options: LinkOptions): Promise<Link> {
  const { databaseUrl, redisUrl } = options;
  const postgres = endpoint(databaseUrl, 5_432);
  const redis = endpoint(redisUrl, 6_379);
  const program = startProgram<ToProxy, FromProxy>('network/proxy.ts');
  let orders = 0;
  const order = async (what: Order): Promise<RoundTrips> => {
    const number = ++orders;
    program.tell({ ...what, number });
    const isAnswer = (message: FromProxy): message is Extract<FromProxy, { done: Order['do'] }> =>
      message.done !== 'open' && message.number === number;
    return (await program.hear(isAnswer, { withinMs: answerMs })).trips;
  };
  let rttMs = 0;
  const delay = async (ms: number): Promise<void> => {
    await order({ do: 'delay', rttMs: ms });
    rttMs = ms;
  };
  try {
    program.tell({ do: 'open', postgres, redis });
    const ports = await program.hear((message) => message.done === 'open');
    await delay(options.rttMs);
    return {
      databaseUrl: through(databaseUrl, ports.postgres),
      redisUrl: through(redisUrl, ports.redis),
      pid: program.pid,
      get rttMs() {
        return rttMs;
      },
      died: program.died,
      roundTrips: () => order({ do: 'count' }),
      reset: async () => {
        await order({ do: 'reset' });
      },
      delay,
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
  if (hostname === '')
    throw new Error('a network is put between service and store only where the URL names a host');
  return { host: hostname.replace(/^\[|\]$/g, ''), port: port === '' ? defaultPort : Number(port) };
}

function through(url: string, port: number): string {
  const changed = new URL(url);
  changed.host = `127.0.0.1:${port}`;
  return changed.href;
}
