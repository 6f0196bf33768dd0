/** Binding the port, and graceful shutdown. */
import type { Server as HttpServer } from 'node:http';
import { createServer, Server, type Socket } from 'node:net';
import { setImmediate as polled, setTimeout as sleep } from 'node:timers/promises';
import { OperatorError } from '../config/errors.ts';
import { limits } from '../config/limits.ts';

/** Where a server listens. Port 0: any free port. */
export interface Address {
  readonly port: number;
  readonly host: string;
}

/** The ports that a service listens on; `adminPort` is null without ADMIN_PORT. */
export interface Ports {
  readonly port: number;
  readonly adminPort: number | null;
}

/** The address cannot be bound. */
class ListenError extends OperatorError {
  override readonly name = 'ListenError';
  readonly code = 'ERR_STAMPEDE_LISTEN';
}

/** The open connections of each server. */
const connections = new WeakMap<Server, Set<Socket>>();

/** @throws ListenError */
export function listenOn(server: Server, address: Address, variable = 'PORT'): Promise<void> {
  const open = new Set<Socket>();
  connections.set(server, open);
  server.on('connection', (socket) => {
    open.add(socket);
    socket.once('close', () => open.delete(socket));
  });
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(explain(error, address, variable)));
    server.listen(address.port, address.host, limits.listenBacklog, resolve);
  });
}

/**
 * Checks that the address can be bound: a service that cannot listen must not start or migrate stores.
 * @param variable names its port
 * @throws ListenError
 */
export async function checkAddress(address: Address, variable = 'PORT'): Promise<void> {
  if (address.port === 0) return;
  const server = createServer();
  await listenOn(server, address, variable);
  await new Promise((resolve) => server.close(resolve));
}

function explain(cause: NodeJS.ErrnoException, { port, host }: Address, variable: string): Error {
  if (cause.code === 'EADDRINUSE') {
    return new ListenError(
      `Port ${port} is in use. Stop the process that listens there, or choose another port: ${variable}=${port + 1} npm start`,
      { cause },
    );
  }
  if (cause.code === 'EACCES')
    return new ListenError(`No permission to listen on port ${port}. Choose a port above 1023.`, { cause });
  if (cause.code === 'EADDRNOTAVAIL')
    return new ListenError(
      `This machine has no address ${host}. Check ${variable.replace('PORT', 'HOST')}.`,
      { cause },
    );
  return cause;
}

/**
 * Stops accepting connections, answers the requests in progress, and closes each connection with its next answer. After
 * `drainMs` it closes idle connections, and those on which nothing was sent, and `shutdownMs` after the stop all.
 *
 * The listener is closed before the first `Connection: close`: a client whose connection is closed connects again at once, and the
 * kernel resets what it has accepted for a listener that closes. A connection that comes in that instant is reset all the same.
 *
 * An idle connection is kept for `drainMs`, because its client may just have sent a request on it. In a test with sixteen busy
 * clients, closing idle connections at once (as `http.Server.close` does) lost about four requests.
 *
 * A process that got no CPU for a while finds connections that it has not accepted, and requests that it has not read. It closes
 * nothing before it has read them: `setImmediate` runs after the event loop has polled.
 */
export async function stopListening(server: HttpServer): Promise<void> {
  const deadline = setTimeout(() => server.closeAllConnections(), limits.shutdownMs);
  await polled(); // what the poll that brought the signal found
  await polled(); // what came while that was worked on
  const closed = new Promise((resolve) => Server.prototype.close.call(server, resolve));
  server.prependListener('request', (_req, res) => res.setHeader('Connection', 'close'));
  await Promise.race([closed, sleep(limits.drainMs)]);
  // A connection whose response began before has no `Connection: close` and would stay open while idle.
  const closeIdle = () =>
    setImmediate(() => {
      server.closeIdleConnections();
      for (const socket of connections.get(server) ?? []) if (socket.bytesRead === 0) socket.destroy(); // Node takes it for a busy one
    });
  const idle = setInterval(closeIdle, 100);
  await closed;
  clearTimeout(deadline);
  clearInterval(idle);
}
