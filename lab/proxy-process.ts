/** Proxies in a separate process, so that their bytes do not wait for the load generator. See far-stores.ts. */
import type { FromProxies, ToProxies } from './far-stores.ts';
import { TcpProxy } from './proxy.ts';

const proxies: TcpProxy[] = [];
process.on('disconnect', () => process.exit(0));
process.on('message', async ({ number, open = [], rttMs, reset }: ToProxies) => {
  for (const endpoint of open) proxies.push(await TcpProxy.open(endpoint));
  for (const proxy of proxies) {
    if (rttMs !== undefined) proxy.rttMs = rttMs;
    if (reset) proxy.roundTrips = 0;
  }
  const [ports, trips] = [proxies.map(({ port }) => port), proxies.map(({ roundTrips }) => roundTrips)];
  process.send?.({ kind: 'done', number, ports, trips } satisfies FromProxies);
});
