/**
 * The client of the locks on node-redis (the package `redis`): a client of one server, of Sentinels or of a cluster.
 *
 * It opens connections of the same kind as the given client: commands on that one could wait behind a blocking command, and be queued
 * while it is not connected, so that they run when their lease has long ended.
 */
import type { NodeRedis } from '../callers.ts';
import { type RedisClient, type RedisServerOfKey, RequestError } from '../clients.ts';
import { type Opening, whenConnected } from './opening.ts';
import { explainRedis, isStill, leavesServer } from './redis-errors.ts';
import { scriptBy } from './scripts.ts';
import { slotOf } from './slots.ts';
import { CONNECT_MS, inTime, REPLY_MS, retryMs } from './timing.ts';

interface Duplicate extends NodeRedis {
  readonly isReady?: boolean;
  connect(): Promise<unknown>;
  destroy(): void;
  on(event: string, listener: (error: Error) => void): void;
  /** Of a cluster. */
  getSlotMaster?(slot: number): unknown;
  nodeClient?(node: unknown): NodeRedis | Promise<NodeRedis>;
  subscribe(channel: string, listener: (message: string) => void): Promise<unknown>;
}

const socket = { connectTimeout: REPLY_MS, reconnectStrategy: retryMs };

/** The locks compare replies: a mapping of the caller's would turn numbers into texts, or OK into bytes. */
const PLAIN = { typeMapping: {} };

type Kind = 'server' | 'sentinels' | 'cluster';

const kindOf = (client: NodeRedis): Kind => {
  if ('getSlotMaster' in client) return 'cluster';
  return 'getSentinelNode' in client || 'getMasterNode' in client ? 'sentinels' : 'server';
};

function duplicateOf(client: NodeRedis, kind: Kind, onError: (error: Error) => void): Duplicate {
  const { options } = client as { options?: { socket?: object } };
  // Options of servers behind Sentinels and in a cluster are private to the client, and would be replaced as a whole.
  const isAlone = kind === 'server';
  const duplicate = client.duplicate(
    isAlone ? { disableOfflineQueue: true, socket: { ...options?.socket, ...socket } } : {},
  );
  duplicate.on('error', onError);
  return duplicate;
}

/** @param key decides about the server of a cluster */
function sent(client: NodeRedis, kind: Kind, words: string[], key: string | undefined): Promise<unknown> {
  if (kind === 'cluster') return client.sendCommand(key, false, words, PLAIN);
  return kind === 'sentinels' ? client.sendCommand(false, words, PLAIN) : client.sendCommand(words, PLAIN);
}

/** Of a cluster, it goes to the server that has the key, and follows no redirection. */
async function sentTo(client: Duplicate, kind: Kind, key: string, words: string[]): Promise<unknown> {
  if (kind !== 'cluster') return sent(client, kind, words, key);
  const node = await client.nodeClient!(client.getSlotMaster!(slotOf(key)));
  return node.sendCommand(words, PLAIN);
}

/** Sentinels and a cluster say by themselves which server is the primary. */
function reconnect(client: Duplicate, onError: (error: Error) => void): void {
  if (client.isReady !== true) return;
  client.destroy();
  client.connect().catch(onError);
}

/** @param onError receives errors of connections */
export function openNodeRedis(given: NodeRedis, onError: (error: Error) => void): Opening {
  const kind = kindOf(given);
  const client = duplicateOf(given, kind, onError);
  let connections = 0;
  for (const event of ['reconnecting', 'topology-change', 'node-reconnecting', 'node-disconnect'])
    client.on(event, () => void connections++);
  const connected = requested(client.connect(), CONNECT_MS);

  async function send(command: string, ...rest: (string | number)[]): Promise<unknown> {
    const words = [command, ...rest.map(String)];
    const key = command.startsWith('EVAL') ? words[3] : words[1];
    const reply = sent(client, kind, words, key);
    reply.catch((error) => kind === 'server' && leavesServer(error) && reconnect(client, onError));
    return requested(reply);
  }
  const serverOf = (key: string): RedisServerOfKey => {
    const asked = (...words: string[]) => requested(sentTo(client, kind, key, words));
    return {
      get connections() {
        return connections;
      },
      wait: async (replicas, ms) => Number(await asked('WAIT', String(replicas), String(ms))),
      mark: (marker) => isStill(asked('SET', marker, '1', 'PX', '1')),
    };
  };
  const only = serverOf('');
  const opened: RedisClient = {
    isCluster: kind === 'cluster',
    send,
    script: (name, numberOfKeys) => scriptBy(send, name, numberOfKeys) as never,
    // Servers of a cluster share no check: each key has its server.
    serverOf: (key) => (kind === 'cluster' ? serverOf(key) : only),
    subscriber(channel, { message, error }) {
      const subscriber = duplicateOf(given, kind, error);
      let isSubscribed = false;
      return {
        get isReady() {
          return isSubscribed && (subscriber.isReady ?? subscriber.isOpen);
        },
        async subscribe() {
          try {
            await requested(subscriber.connect(), CONNECT_MS);
            await requested(subscriber.subscribe(channel, message));
          } catch (error) {
            if (subscriber.isOpen) subscriber.destroy(); // the next call connects again
            throw error;
          }
          isSubscribed = true;
        },
        close: () => subscriber.isOpen && subscriber.destroy(),
      };
    },
    onReady: (callback) => client.on('ready', callback),
    another: (listener) => whenConnected(openNodeRedis(given, listener)),
    async close() {
      if (client.isOpen) client.destroy();
    },
  };
  return { client: opened, connected };
}

/** Waits for a reply. @throws RequestError, or the error itself when it is a defect */
async function requested<T>(request: Promise<T>, ms = REPLY_MS): Promise<T> {
  try {
    return await inTime(request, ms, 'Command timed out');
  } catch (error) {
    throw new RequestError(explainRedis(error), error);
  }
}
