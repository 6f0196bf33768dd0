import { type LockFault, TTL_MS } from './fault.ts';

export const clockAhead: LockFault = {
  name: 'clock-ahead',
  title: 'clock ahead',
  happens:
    'The server’s clock jumps ahead by more than the lease, and back after a second: a virtual machine that resumes, a time server that is wrong.',
  workMs: 2_500,
  strike: ({ servers }) => servers.setClock(0, 2 * TTL_MS),
  lastsMs: 1_000,
  heal: ({ servers }) => servers.setClock(0, 0),
};
