/**
 * The way from the service to its stores as a network with a known round-trip time, and a count of the round trips on it:
 * two proxies in a process (link-proxy.ts), which ends with this one.
 */
import { startProgram } from './processes.ts';

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

export interface Link extends AsyncDisposable {
  /** Postgres through the proxy; user, database and query are those that were given. */
  readonly databaseUrl: string;
  /** Redis through the proxy. */
  readonly redisUrl: string;
  readonly pid: number;
  /** Fires when the proxies end before they are disposed of. */
  readonly died: AbortSignal;
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

type Order =
  | { readonly do: 'count' }
  | { readonly do: 'reset' }
  | { readonly do: 'delay'; readonly rttMs: number };
/** `open` comes first, and once. */
export type ToProxy =
  | { readonly do: 'open'; readonly postgres: Endpoint; readonly redis: Endpoint }
  | (Order & { readonly number: number });
/** The ports of the proxies, or the round trips so far. */
export type FromProxy =
  | { readonly done: 'open'; readonly postgres: number; readonly redis: number }
  | { readonly done: Order['do']; readonly number: number; readonly trips: RoundTrips };

const answerMs = 10_000;

/** @throws when a URL names no host, or the proxies cannot be started */
export async function openLink({ databaseUrl, redisUrl, rttMs }: LinkOptions): Promise<Link> {
  const [postgres, redis] = [endpoint(databaseUrl, 5_432), endpoint(redisUrl, 6_379)];
  const program = startProgram<ToProxy, FromProxy>('kit/link-proxy.ts');
  let orders = 0;
  const order = async (what: Order): Promise<RoundTrips> => {
    const number = ++orders;
    program.send({ ...what, number });
    const isAnswer = (message: FromProxy): message is Extract<FromProxy, { done: Order['do'] }> =>
      message.done !== 'open' && message.number === number;
    return (await program.receive(isAnswer, { withinMs: answerMs })).trips;
  };
  const delay = async (ms: number): Promise<void> => void (await order({ do: 'delay', rttMs: ms }));
  try {
    program.send({ do: 'open', postgres, redis });
    const ports = await program.receive((message) => message.done === 'open');
    await delay(rttMs);
    return {
      databaseUrl: through(databaseUrl, ports.postgres),
      redisUrl: through(redisUrl, ports.redis),
      pid: program.pid,
      died: program.died,
      roundTrips: () => order({ do: 'count' }),
      reset: async () => void (await order({ do: 'reset' })),
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
  if (hostname === '') throw new Error('a network between service and store needs a URL that names a host');
  return { host: hostname.replace(/^\[|\]$/g, ''), port: port === '' ? defaultPort : Number(port) };
}

function through(url: string, port: number): string {
  const changed = new URL(url);
  changed.host = `127.0.0.1:${port}`;
  return changed.href;
}
