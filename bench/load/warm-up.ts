/** Warms the open loop's generator up, which is as slow as any young code. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { buyerName } from './attempts.ts';
import { runOpenLoop } from './open.ts';
import { poisson } from './schedule.ts';

const load = { ratePerSecond: 5_000, durationMs: 2_500, seed: 1 };
const requestTimeoutMs = 10_000;

/**
 * A generator whose code the engine has not compiled yet sends its first ten thousand requests late, and drops some. A
 * server in this process takes these, so that no service under test has a part in it. It takes 2.5 s.
 * @param connections as many as will be used afterwards
 */
export async function warmGeneratorUp(connections: number, signal: AbortSignal): Promise<void> {
  const server = createServer((request, response) => {
    request.resume().once('end', () => response.writeHead(503).end('{"type":"busy"}'));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const schedule = poisson(load);
  try {
    await runOpenLoop({
      url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      saleId: 1,
      users: Array.from(schedule, (_, n) => buyerName(n)),
      schedule,
      connections,
      maxOutstanding: connections,
      requestTimeoutMs,
      signal,
    });
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}
