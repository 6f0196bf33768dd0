/** Clients of server-sent events during a load: they read and discard the events. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

export interface Streams {
  readonly path: string;
  readonly count: number;
}

/** Connections opened concurrently. */
const together = 100;

/** Opens the streams and waits for the first event of each. @throws when one is refused */
export async function openStreams(url: string, { path, count }: Streams): Promise<Disposable> {
  const { hostname, port, host } = new URL(url);
  const sockets: Socket[] = [];
  const open = async () => {
    const socket = connect(Number(port), hostname);
    sockets.push(socket);
    socket.write(`GET ${path} HTTP/1.1\r\nHost: ${host}\r\nAccept: text/event-stream\r\n\r\n`);
    const [head] = (await once(socket, 'data')) as [Buffer];
    if (!/^HTTP\/1\.1 200 /.test(String(head))) throw new Error(`a stream was answered ${String(head)}`);
    socket.on('error', () => {}).resume();
  };
  for (let left = count; left > 0; left -= together)
    await Promise.all(Array.from({ length: Math.min(left, together) }, open));
  return {
    [Symbol.dispose]() {
      for (const socket of sockets) socket.destroy();
    },
  };
}
