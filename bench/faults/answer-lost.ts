import type { LockFault } from './fault.ts';

export const answerLost: LockFault = {
  name: 'answer-lost',
  title: 'answer lost',
  happens:
    'The server grants the lock, and the answer never arrives: the client does not know whether it holds the lock.',
  workMs: 1_000,
  atAsking: true,
  async strike({ links }) {
    for (const link of links) link.set('lose-replies');
  },
  lastsMs: 500,
  async heal({ links }) {
    for (const link of links) link.set('pass');
  },
};
