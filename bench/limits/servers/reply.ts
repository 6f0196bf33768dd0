/** What the two servers that only reply have in common: the answer, as large as that of an accepted attempt, and how they start. */
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';

/** One accepted attempt; the customer's name is as long as those of the load. */
export const reply = {
  orderId: '019ab4e6-2b5c-7d1e-9f00-3c6a5d8e7f10',
  saleId: 1,
  userId: 'b1000000000',
  status: 'pending',
  replayed: false,
};

/** What the server tells the bench once it listens. */
export interface Listening {
  readonly port: number;
}

/** Listens on a port of its own until the bench is gone. */
export function serve(listener: RequestListener): void {
  process.on('disconnect', () => process.exit(0));
  const server = createServer(listener);
  server.keepAliveTimeout = 65_000; // as the service
  server.listen(0, '127.0.0.1', () => {
    const { port } = server.address() as AddressInfo;
    process.send?.({ port } satisfies Listening);
  });
}
