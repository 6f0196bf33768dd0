import type { StrategyFault } from './strategy-fault.ts';

export const bothKilled: StrategyFault = {
  name: 'both-killed',
  title: 'both stores killed',
  happens: 'Both stores die at once, as on one machine that loses power, and Redis comes back empty.',
  onOneRedis: true,
  async strike({ redis, postgres }) {
    await Promise.all([redis.kill(), postgres.kill()]);
  },
  async heal({ redis, postgres }) {
    await Promise.all([redis.start(true), postgres.start(false)]);
  },
};
