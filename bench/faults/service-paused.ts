import type { StrategyFault } from './strategy-fault.ts';

export const servicePaused: StrategyFault = {
  name: 'service-paused',
  title: 'service paused',
  happens:
    'The service is stopped for 2 s with requests in progress: a suspended machine, a throttled container.',
  strike: async ({ service }) => service.signal('SIGSTOP'),
  heal: async ({ service }) => service.signal('SIGCONT'),
};
