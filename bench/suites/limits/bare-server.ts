/** The limit of the platform: node:http that reads a POST to its end and sends a fixed reply, as long as a real one. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

/** Sent when it listens. */
export interface Listening {
  readonly kind: 'listening';
  readonly port: number;
}

const order = { orderId: '019ab4e6-2b5c-7d1e-9f00-3c6a5d8e7f10', saleId: 1, userId: 'b1000000000' };
const body = Buffer.from(JSON.stringify({ ...order, status: 'pending', replayed: false }));
const headers = { 'Content-Type': 'application/json; charset=utf-8', 'Content-Length': body.length };

process.on('disconnect', () => process.exit(0));
const server = createServer((request, response) => {
  request.on('data', () => {});
  request.on('end', () => response.writeHead(201, headers).end(body));
});
server.keepAliveTimeout = 65_000; // as the service
server.listen(0, '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo;
  process.send?.({ kind: 'listening', port } satisfies Listening);
});
