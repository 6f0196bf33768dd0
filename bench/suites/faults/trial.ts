/** Runs one fault against one lock: three client processes, servers of its own, and the history of each client. */
import { mkdir } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { LockCell } from '../../../lab/clients/lock-cells.ts';
import { LockClients } from '../../../lab/clients/lock-clients.ts';
import { type LockFault, type Scene, TTL_MS } from '../../../lab/faults/fault.ts';
import { nowNs } from '../../../lab/kit/monotonic.ts';
import { seededRandom } from '../../../lab/kit/random.ts';
import { removeFolder } from '../../../lab/kit/temporary-folder.ts';
import { TcpProxy } from '../../../lab/proxy.ts';
import { openLabServers } from '../../../lab/servers/open.ts';
import { findValkey } from '../../../lab/servers/valkey.ts';
import { CLIENTS, type Client, judgeLock, type LabEvent, type LockTrial } from './history.ts';
import type { Order } from './result.ts';

/** A busy machine connects too late: a process that cannot open its lock is replaced, as a supervisor does, this often in all. */
const OPENINGS = 5;
/** How long B and C work: less than a lease. */
const WORK_MS = 700;
/** The least time from the grant to the strike; a seed adds up to as much again. */
const STRIKE_MS = 150;
/** A is granted a free lock within this time. If the lock refuses A (too few replicas), the fault strikes without a holder. */
const GRANT_MS = 2_000;
/** Default time after the fault to serve all clients, in leases. */
const PATIENCE_LEASES = 6;

/** The processes of one lane. They serve many trials; one that a fault killed is replaced. */
export class Clients implements AsyncDisposable {
  readonly #processes = new Map<Client, LockClients>();
  /** Events of the clients in this trial. */
  events: LabEvent[] = [];

  get(client: Client): LockClients {
    const known = this.#processes.get(client);
    if (known !== undefined && !known.died.aborted) return known;
    const process = new LockClients();
    process.onEvent = (event) => this.events.push({ ...event, client });
    this.#processes.set(client, process);
    return process;
  }

  /** Kills a client whose lock does not close. */
  async replace(client: Client): Promise<void> {
    const process = this.#processes.get(client);
    this.#processes.delete(client);
    await process?.kill();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([...this.#processes.values()].map((process) => process[Symbol.asyncDispose]()));
  }
}

export interface LockOrder extends Order {
  readonly lock: LockCell;
  readonly fault: LockFault;
  /** Time after the fault to serve all clients, in ms; by default six leases. Later, a client that waits makes the lock "stuck". */
  readonly patienceMs?: number;
}

export async function runLockTrial(clients: Clients, order: LockOrder): Promise<LockTrial> {
  const { lock, fault, folder, clock } = order;
  const ttlMs = fault.leaseMs ?? TTL_MS;
  await mkdir(folder, { recursive: true });
  // Declared first, so that it goes last: the servers write into the folder until they end.
  await using _ = { [Symbol.asyncDispose]: () => removeFolder(folder) };
  const replicas = lock.servers === 'redis-replica' ? 2 : fault.name === 'split-brain' ? 1 : 0;
  const group = fault.group ?? null;
  const program = lock.servers === 'valkey' ? await findValkey() : null;
  await using servers = await openLabServers(lock.servers, { folder, clock, group, program, replicas });
  const links = {} as Record<Client, TcpProxy[]>;
  for (const client of CLIENTS)
    links[client] = await Promise.all(servers.nodes.map(({ port }) => TcpProxy.open({ port })));
  const open = async (client: Client) => {
    const urls = servers.urls(links[client].map(({ port }) => port));
    const what = { lock: lock.lock, urls, ttlMs };
    for (let tries = 1; ; tries++) {
      try {
        return await clients.get(client).send('open', what);
      } catch (cause) {
        order.signal.throwIfAborted();
        if (tries === OPENINGS)
          throw new Error(`client ${client} cannot open the lock: ${(cause as Error).message}`, { cause });
        await clients.replace(client);
      }
    }
  };
  try {
    await Promise.all(CLIENTS.map(open));
    clients.events = [];
    const holder = clients.get('A');
    return await strikeHolder(clients, order, {
      ...{ lock, servers, holder, links: links.A, others: [...links.B, ...links.C] },
    });
  } finally {
    await Promise.all(CLIENTS.map((client) => close(clients, client)));
    await Promise.all(Object.values(links).flatMap((all) => all.map((link) => link.close())));
  }
}

/** Runs until all clients are served, or time is up. */
async function strikeHolder(clients: Clients, order: LockOrder, scene: Scene): Promise<LockTrial> {
  const { fault, seed, signal, patienceMs = PATIENCE_LEASES * (fault.leaseMs ?? TTL_MS) } = order;
  const { events } = clients;
  const random = seededRandom(seed);
  const ask = (client: Client, workMs: number): void => {
    const holding = {
      resource: `lab-${seed}`,
      workMs,
      patienceMs: fault.lastsMs + fault.workMs + patienceMs,
    };
    clients
      .get(client)
      .send('hold', holding)
      .catch(() => {}); // killed, or closed before it was served: its events say what it did
  };
  const has = (client: Client, ...kinds: LabEvent['kind'][]) =>
    events.some((event) => event.client === client && kinds.includes(event.kind));
  await fault.before?.(scene);
  let strikeNs = nowNs();
  if (fault.atAsking) await fault.strike(scene);
  ask('A', fault.workMs);
  if (fault.atAsking) await sleep(50);
  else await until(() => has('A', 'granted'), GRANT_MS, signal);
  ask('B', WORK_MS);
  await sleep(50 * random());
  ask('C', WORK_MS);
  if (!fault.atAsking) {
    await sleep(STRIKE_MS * (1 + random()));
    strikeNs = nowNs();
    await fault.strike(scene);
  }
  await sleep(fault.lastsMs);
  await fault.heal?.(scene);
  const healedNs = nowNs();
  const isOver = () => fault.name === 'holder-killed' || has('A', 'released', 'refused');
  await until(() => isOver() && has('B', 'released') && has('C', 'released'), patienceMs, signal);
  return judgeLock(events, [strikeNs, healedNs], nowNs());
}

async function close(clients: Clients, client: Client): Promise<void> {
  const process = clients.get(client);
  process.signal('SIGCONT');
  await process.send('close', {}, { withinMs: 10_000 }).catch(() => clients.replace(client));
}

/** Waits until `holds` is true, or time is up. @returns its last value */
async function until(holds: () => boolean, withinMs: number, signal: AbortSignal): Promise<boolean> {
  const untilMs = performance.now() + withinMs;
  while (!holds() && performance.now() < untilMs) {
    signal.throwIfAborted();
    await sleep(10);
  }
  return holds();
}
