import type { LockFault } from './fault.ts';

export const networkSilent: LockFault = {
  name: 'network-silent',
  title: 'network silent',
  happens:
    'The network between the holder and the server loses every packet, and no connection closes: a firewall, a broken switch.',
  workMs: 3_600,
  async strike({ links }) {
    for (const link of links) link.set('black-hole');
  },
  lastsMs: 2_500,
  async heal({ links }) {
    for (const link of links) link.set('pass');
  },
};
