import type { StrategyFault } from './strategy-fault.ts';

export const serviceKilled: StrategyFault = {
  name: 'service-killed',
  title: 'service killed',
  happens: 'The only process of the service dies in the middle of its work, and starts again after 2 s.',
  strike: ({ service }) => service.kill(),
  heal: ({ service }) => service.start(),
};
