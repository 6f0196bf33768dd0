/**
 * The HTTP server as clients meet it, before any route: how many requests of one connection are in progress, which host
 * a request names, what it expects, and what becomes of bytes that are no request.
 */
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerOptions,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http';
import type { Socket } from 'node:net';
import { limits } from '../config/limits.ts';
import { problemBody } from './problems.ts';

/** A server whose every answer is the listener's, or a problem. */
export function createHttpServer(listener: RequestListener, options: ServerOptions = {}): Server {
  // Node would answer a missing Host without a body; Express's way answers it as a problem: see oneHost.
  const server = createServer({ ...options, requireHostHeader: false }, bounded(listener));
  server.on('checkExpectation', bounded(refuseExpectation));
  answerUnreadable(server);
  return server;
}

/** Requests of a connection that are not answered, or whose answer is not sent. */
const IN_PROGRESS = Symbol('requests in progress');
type CountedSocket = Socket & { [IN_PROGRESS]?: number };

/**
 * Bounds the requests in progress on one connection: a client that pipelines and does not read would have each of them
 * held in memory. The connection that exceeds the bound is closed.
 */
function bounded(listener: RequestListener): RequestListener {
  return (req, res) => {
    const socket = req.socket as CountedSocket;
    // What was in the same packet is still parsed after the connection is closed.
    if (socket.destroyed) return;
    const inProgress = (socket[IN_PROGRESS] ?? 0) + 1;
    if (inProgress > limits.requestsPerConnection) {
      socket.destroy();
      return;
    }
    socket[IN_PROGRESS] = inProgress;
    res.on('close', countDown);
    listener(req, res);
  };
}

/** One function for all responses: the hot route makes no closure for it. */
function countDown(this: ServerResponse): void {
  const socket = this.req.socket as CountedSocket;
  socket[IN_PROGRESS]! -= 1;
}

/** How many `Host` headers a request has; Node keeps the first and drops the others. */
function hostsOf({ rawHeaders }: IncomingMessage): number {
  let hosts = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!;
    if (name.length === 4 && name.toLowerCase() === 'host') hosts++;
  }
  return hosts;
}

/** What is wrong with the `Host` of a request: HTTP/1.1 has exactly one, HTTP/1.0 at most one. Null: nothing. */
export function hostMistake(req: IncomingMessage): string | null {
  const hosts = hostsOf(req);
  if (hosts > 1) return 'A request has one Host header, not several.';
  return hosts === 0 && req.httpVersion === '1.1' ? 'The header Host is missing.' : null;
}

/** `Expect: 100-continue` is Node's to answer; there is nothing else to expect. */
function refuseExpectation(req: IncomingMessage, res: ServerResponse): void {
  const mistake = hostMistake(req);
  const status = mistake === null ? 417 : 400;
  const { body, headers } = unreadable(status, mistake ?? 'Only 100-continue can be expected.');
  if (mistake !== null) res.setHeader('Connection', 'close');
  res.writeHead(status, headers).end(body);
}

/** What Node itself refuses to read becomes a problem, too: garbage, headers that are too large, requests too slow. */
function answerUnreadable(server: Server): void {
  const statuses: Record<string, number> = { HPE_HEADER_OVERFLOW: 431, ERR_HTTP_REQUEST_TIMEOUT: 408 };
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => {
    if (!socket.writable || error.code === 'ECONNRESET') return socket.destroy();
    const status = statuses[error.code ?? ''] ?? 400;
    const { body, headers } = unreadable(status, 'This is not a request that can be read.');
    const head = Object.entries({ ...headers, Connection: 'close' }).map(
      ([name, value]) => `${name}: ${value}`,
    );
    return socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${head.join('\r\n')}\r\n\r\n${body}`);
  });
}

/** A request that is not valid, with a status of its own. */
function unreadable(status: number, detail: string) {
  const body = JSON.stringify({ ...problemBody('invalid-request', detail), status });
  const headers = {
    'Content-Type': 'application/problem+json',
    'Content-Length': String(Buffer.byteLength(body)),
  };
  return { body, headers };
}
