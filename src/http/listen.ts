/** Taking the port, and giving it up. */
import type { Server as HttpServer } from 'node:http';
import { createServer, type Server } from 'node:net';
import { limits } from '../config/limits.ts';

/** Where a server listens. */
export interface Place {
  readonly port: number;
  readonly host: string;
}

/** The place cannot be had; the message says what to do. */
export class ListenError extends Error {
  override readonly name = 'ListenError';
}

/** @throws ListenError */
export function listenOn(server: Server, place: Place): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => reject(explain(error, place)));
    server.listen(place.port, place.host, resolve);
  });
}

/**
 * Whether the place can be had now: a service that cannot listen must not start or migrate stores.
 * @throws ListenError
 */
export async function tryPlace(place: Place): Promise<void> {
  if (place.port === 0) return; // any that is free
  const server = createServer();
  await listenOn(server, place);
  await new Promise((resolve) => server.close(resolve));
}

function explain(error: NodeJS.ErrnoException, { port, host }: Place): Error {
  if (error.code === 'EADDRINUSE') {
    return new ListenError(
      `Port ${port} is taken. Stop what listens there, or choose another: PORT=${port + 1} npm start`,
    );
  }
  if (error.code === 'EACCES')
    return new ListenError(`Not allowed to listen on port ${port}. Choose one above 1023.`);
  if (error.code === 'EADDRNOTAVAIL')
    return new ListenError(`This machine has no address ${host}. Check HOST.`);
  return error;
}

/** No new connections; each one that is open gets its answer and is closed, within bounds. */
export async function stopListening(server: HttpServer): Promise<void> {
  server.prependListener('request', (_req, res) => res.setHeader('Connection', 'close'));
  const late = setTimeout(() => server.closeAllConnections(), limits.shutdownMs);
  // One whose request began before is not told to close, and would stay.
  const idle = setInterval(() => server.closeIdleConnections(), 100);
  await new Promise((resolve) => server.close(resolve));
  clearTimeout(late);
  clearInterval(idle);
}
