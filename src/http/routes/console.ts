/** Data of the console: the health of the service as events, read once for all viewers. */
import * as z from 'zod';
import { limits } from '../../config/limits.ts';
import { Broadcast } from '../broadcast.ts';
import { events } from '../openapi-responses.ts';
import { tagged } from '../route.ts';
import { runChecks } from './service.ts';

const EVERYTHING = 'console';

export const streamConsole = tagged('Service', true)('get /console/events', 'admin', {
  summary: 'Stream the health of the service for the console: server-sent events',
  description: 'Fields may change between versions. For monitoring, use /metrics.',
  answers: { 200: events(z.looseObject({ now: z.int() }), 'A stream') },
  setup({ service, stopping, onStoreError }) {
    const streams = new Broadcast<typeof EVERYTHING>({
      everyMs: limits.events.consoleEveryMs,
      read: async () => {
        const health = { stores: await runChecks(service.checks), degraded: service.degraded() };
        return { values: new Map([[EVERYTHING, health]]), nowMs: Date.now() };
      },
      onError: (error) => onStoreError('watch-health', error),
    });
    stopping.addEventListener('abort', () => streams.close());
    return streams;
  },
  async handle({ req, res }, _context, streams) {
    if (req.method === 'HEAD') return res.type('text/event-stream').end();
    await streams.listen(EVERYTHING, res);
  },
});
