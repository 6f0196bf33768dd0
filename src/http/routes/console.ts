/** Data of the console: the service's activity as events, computed once for all viewers. */
import * as z from 'zod';
import { limits } from '../../config/limits.ts';
import { activityBetween, type ConsoleEvent, type Reading, readMetrics } from '../../metrics/activity.ts';
import { Broadcast } from '../broadcast.ts';
import type { ServiceContext } from '../context.ts';
import { events } from '../openapi-responses.ts';
import { tagged } from '../route.ts';
import { metricsText, runChecks } from './service.ts';

const EVERYTHING = 'console';

export const streamConsole = tagged('Service', true)('get /console/events', 'admin', {
  summary: 'Stream live figures for the console: server-sent events, one a second',
  description: 'Fields may change between versions. For monitoring, use /metrics.',
  answers: { 200: events(z.looseObject({ now: z.int() }), 'A stream') },
  setup({ service, stopping, onStoreError }) {
    const read = activityReader(service);
    const streams = new Broadcast<typeof EVERYTHING>({
      everyMs: limits.events.consoleEveryMs,
      read: async () => ({ values: new Map([[EVERYTHING, await read()]]), nowMs: Date.now() }),
      onError: (error) => onStoreError('watch-metrics', error),
    });
    stopping.addEventListener('abort', () => streams.close());
    return streams;
  },
  async handle({ req, res }, _context, streams) {
    if (req.method === 'HEAD') return res.type('text/event-stream').end();
    await streams.listen(EVERYTHING, res);
  },
});

/** @returns a function that reads the activity since its last call; its first call reports none */
function activityReader(service: ServiceContext): () => Promise<ConsoleEvent> {
  let last: { readonly reading: Reading; readonly atMs: number } | null = null;
  return async () => {
    const [text, stores] = await Promise.all([metricsText(service), runChecks(service.checks)]);
    const reading = readMetrics(text);
    const atMs = performance.now();
    // After a pause without viewers, rates would be averages over minutes.
    const isRecent = last !== null && atMs - last.atMs < 5 * limits.events.consoleEveryMs;
    const before = isRecent ? last! : { reading, atMs: atMs - limits.events.consoleEveryMs };
    last = { reading, atMs };
    const seconds = (atMs - before.atMs) / 1_000;
    return { ...activityBetween(before.reading, reading, seconds), stores, degraded: service.degraded() };
  };
}
