/** HTTP servers for tests of load generators, closed after each test of the file that imports this. */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach } from 'vitest';

const servers: ReturnType<typeof createServer>[] = [];

export async function closeServers(): Promise<void> {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}
afterEach(closeServers);

/** @returns the server's URL */
export async function serve(
  answer: (body: string, response: ServerResponse, request: IncomingMessage) => void,
): Promise<string> {
  const server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk: Buffer) => {
      body += chunk.toString();
    });
    request.on('end', () => answer(body, response, request));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  servers.push(server);
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Names of customers. */
export const users = (count: number): string[] => Array.from({ length: count }, (_, n) => `user-${n}`);

/** Sends part of an accepted answer, then resets the connection. */
export function halfAnswer({ socket }: IncomingMessage): void {
  socket.write('HTTP/1.1 201 Created\r\nContent-Length: 90\r\n\r\n{"orderId":"half","a":1');
  setTimeout(() => socket.resetAndDestroy(), 3);
}

/** Answers the n-th purchase, counted from 0. */
type Behave = (n: number, accept: () => void, response: ServerResponse, request: IncomingMessage) => void;

/** Accepts a purchase of any sale when `behave` says so. `seen`: the customers of purchases, in order of arrival. */
export async function fakeShop(behave: Behave): Promise<{ readonly url: string; readonly seen: string[] }> {
  const seen: string[] = [];
  const url = await serve((body, response, request) => {
    if (request.method !== 'POST') return response.end('{"id":5,"stock":1000,"sold":0,"remaining":1000}');
    const saleId = Number(/^\/sales\/(\d+)\/orders$/.exec(request.url!)![1]);
    const { userId } = JSON.parse(body) as { userId: string };
    const order = { orderId: `order-of-${userId}`, saleId, userId, status: 'pending', replayed: false };
    const accept = (): void => void response.writeHead(201).end(JSON.stringify(order));
    behave(seen.push(userId) - 1, accept, response, request);
  });
  return { url, seen };
}
