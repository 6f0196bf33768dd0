/** An HTTP server on loopback, for what the service sends. */
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Receiver extends AsyncDisposable {
  /** Without a path. */
  readonly url: string;
}

export async function openReceiver(listener: RequestListener): Promise<Receiver> {
  const server = createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async [Symbol.asyncDispose]() {
      server.close();
      server.closeAllConnections();
    },
  };
}
