/**
 * The HTTP server below the routes: bounds connections, their requests in progress and the time to send one, validates the `Host` and `Expect` headers,
 * and answers malformed requests with problems.
 */
import { readFileSync } from 'node:fs';
import {
  createServer,
  type IncomingMessage,
  type RequestListener,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http';
import type { Socket } from 'node:net';
import { limits } from '../config/limits.ts';
import { problemBody } from './problems.ts';

/** A server whose every response comes from the listener or is a problem. */
export function createHttpServer(listener: RequestListener): Server {
  const { requestMs: requestTimeout, headersMs: headersTimeout } = limits;
  const times = { requestTimeout, headersTimeout, connectionsCheckingInterval: limits.lateRequestsEveryMs };
  // Node answers a missing Host without a body. createApp answers it with a problem instead: see hostMistake.
  const server = createServer({ ...times, requireHostHeader: false }, bounded(listener));
  server.maxConnections = maxConnections();
  // Node's own times count from the first byte of a request.
  server.on('connection', (socket) => socket.setTimeout(requestTimeout));
  server.on('checkExpectation', bounded(rejectExpectation));
  answerMalformed(server);
  return server;
}

/** Beyond it, connections are closed: without a descriptor the service could not reach its stores. */
function maxConnections(): number {
  let most = Number.POSITIVE_INFINITY;
  try {
    const text = readFileSync('/proc/self/limits', 'utf8');
    most = Number(/^Max open files +(\d+)/m.exec(text)?.[1] ?? most);
  } catch {
    // Other systems than Linux have no such file.
  }
  return Math.max(1, most - limits.reservedDescriptors);
}

/** Requests of a connection without a response, or whose response is not fully sent. */
const IN_PROGRESS = Symbol('requests in progress');
type CountedSocket = Socket & { [IN_PROGRESS]?: number };

/**
 * Bounds the requests in progress per connection, and closes a connection that exceeds the bound: a client that pipelines
 * requests without reading responses would otherwise fill memory.
 */
function bounded(listener: RequestListener): RequestListener {
  return (req, res) => {
    const socket = req.socket as CountedSocket;
    // Node still parses requests of the same packet after the connection was closed.
    if (socket.destroyed) return;
    const inProgress = (socket[IN_PROGRESS] ?? 0) + 1;
    if (inProgress > limits.requestsPerConnection) {
      socket.destroy();
      return;
    }
    if (socket[IN_PROGRESS] === undefined) socket.setTimeout(0); // its first request: see createHttpServer
    socket[IN_PROGRESS] = inProgress;
    res.on('close', countDown);
    listener(req, res);
  };
}

/** Shared by all responses, so that the hot route allocates no closure. */
function countDown(this: ServerResponse): void {
  const socket = this.req.socket as CountedSocket;
  socket[IN_PROGRESS]! -= 1;
}

/** Counts the `Host` headers in the raw request, since Node keeps only the first. */
function hostsOf({ rawHeaders }: IncomingMessage): number {
  let hosts = 0;
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!;
    if (name.length === 4 && name.toLowerCase() === 'host') hosts++;
  }
  return hosts;
}

/** Validates `Host`: HTTP/1.1 requires exactly one, HTTP/1.0 at most one. @returns the mistake, or null */
export function hostMistake(req: IncomingMessage): string | null {
  const hosts = hostsOf(req);
  if (hosts > 1) return 'The request has several Host headers.';
  return hosts === 0 && req.httpVersion === '1.1' ? 'The Host header is missing.' : null;
}

/** Rejects every expectation but `100-continue`, which Node handles. */
function rejectExpectation(req: IncomingMessage, res: ServerResponse): void {
  const mistake = hostMistake(req);
  const status = mistake === null ? 417 : 400;
  const { body, headers } = malformed(status, mistake ?? 'The only supported expectation is 100-continue.');
  if (mistake !== null) res.setHeader('Connection', 'close');
  res.writeHead(status, headers).end(body);
}

/** Answers what Node rejects with problems: malformed requests, oversized headers, slow requests. */
function answerMalformed(server: Server): void {
  const statuses: Record<string, number> = { HPE_HEADER_OVERFLOW: 431, ERR_HTTP_REQUEST_TIMEOUT: 408 };
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Socket) => {
    if (!socket.writable || error.code === 'ECONNRESET') return socket.destroy();
    const status = statuses[error.code ?? ''] ?? 400;
    const { body, headers } = malformed(status, 'The request is malformed.');
    const head = Object.entries({ ...headers, Connection: 'close' }).map(
      ([name, value]) => `${name}: ${value}`,
    );
    return socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${head.join('\r\n')}\r\n\r\n${body}`);
  });
}

/** The problem `invalid-request` with another status. */
function malformed(status: number, detail: string) {
  const body = JSON.stringify({ ...problemBody('invalid-request', detail), status });
  const headers = {
    'Content-Type': 'application/problem+json',
    'Content-Length': String(Buffer.byteLength(body)),
  };
  return { body, headers };
}
