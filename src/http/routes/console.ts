/** Data of the console: the health of the service as events, read once for all viewers. */
import * as z from 'zod';
import { limits } from '../../config/limits.ts';
import { Broadcast } from '../broadcast.ts';
import { events } from '../openapi-responses.ts';
import { tagged } from '../route.ts';
import { runChecks } from './service.ts';

const EVERYTHING = 'console';
/** The most unmatched payments that are counted. */
const UNMATCHED = 1_000;

export const streamConsole = tagged('Service', true)('get /console/events', 'admin', {
  summary: 'Stream the health of the service for the console: server-sent events',
  description: 'Fields may change between versions. For monitoring, use /metrics.',
  answers: { 200: events(z.looseObject({ now: z.int() }), 'A stream') },
  setup({ service, stopping, onStoreError, tasks, reads }) {
    /** Work of operators; null: Postgres does not answer. */
    async function openWork() {
      const [counts, unmatched] = await Promise.all([
        tasks.countOpen(),
        reads.unmatched.list(UNMATCHED, null),
      ]);
      return {
        retried: counts.get('retry') ?? 0,
        dead: counts.get('dead') ?? 0,
        unmatched: unmatched.length,
      };
    }
    const streams = new Broadcast<typeof EVERYTHING>({
      everyMs: limits.events.consoleEveryMs,
      read: async () => {
        const [stores, work] = await Promise.all([runChecks(service.checks), openWork().catch(() => null)]);
        const health = { stores, degraded: service.degraded(), work };
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
