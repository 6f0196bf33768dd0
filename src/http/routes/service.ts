/** Routes for operators and tools: health, readiness, metrics, strategies. */
import * as z from 'zod';
import { coalesce } from '../../concurrency/coalesce.ts';
import { limits } from '../../config/limits.ts';
import { isAdministrator } from '../admin.ts';
import * as a from '../answer-schemas.ts';
import type { ServiceContext } from '../context.ts';
import { json, response } from '../openapi-responses.ts';
import { busy } from '../problems.ts';
import { tagged } from '../route.ts';

const service = tagged('Service', true);

export const serviceRoutes = {
  listStrategies: service('get /strategies', 'anyone', {
    summary: 'Every strategy with its guarantees, and the active one',
    answers: { 200: json(a.strategiesSchema, 'Strategies') },
    handle: ({ res }, { service: { active, lock, strategies, locks } }) =>
      res.json({ active, lock, strategies, locks }),
  }),
  // Liveness ignores the stores (see /readyz): otherwise an outage of a store would restart the service.
  getHealth: service('get /healthz', 'anyone', {
    summary: 'Liveness',
    answers: { 200: json(a.livenessSchema, 'The process is alive') },
    handle: ({ res }) => res.json({ status: 'ok' }),
  }),
  getReadiness: service('get /readyz', 'anyone', {
    summary: 'Readiness: the stores, and failing background work',
    answers: {
      200: json(
        a.readinessSchema,
        'Every store in use answers; `degraded` lists failing background work, tasks whose receiver is not set or keeps failing, masters of a cluster that are down, and a Redis that may evict keys or denies commands',
      ),
      503: json(
        a.readinessSchema,
        'A store does not answer; of a cluster, no master does; of cells, none does; or the service stops',
      ),
    },
    setup: ({ service }) => coalesce(() => runChecks(service.checks)),
    async handle({ req, res }, { service, adminTokens }, readiness) {
      if (service.isStopping()) return res.status(503).json({ status: 'stopping', stores: {} });
      // Errors name addresses of the stores.
      const isOpen = adminTokens !== null && (await isAdministrator(adminTokens, req, res));
      const found = Object.entries(await readiness('all'));
      const areUp = found.every(([, result]) => result === 'ok');
      const ready = service.isDivided ? found.some(([, result]) => result === 'ok') : areUp;
      const shown = (result: string) => (isOpen || result === 'ok' ? result : 'does not answer');
      const stores = Object.fromEntries(found.map(([name, result]) => [name, shown(result)]));
      const degraded = service
        .degraded()
        .map(({ what, detail }) => ({ what, detail: isOpen ? detail : 'for administrators only' }));
      const status = degraded.length === 0 && areUp ? 'ok' : 'degraded';
      return res.status(ready ? 200 : 503).json({
        status: ready ? status : 'unavailable',
        stores,
        ...(degraded.length > 0 && { degraded }),
      });
    },
  }),
  getMetrics: service('get /metrics', 'anyone', {
    summary: 'Metrics for Prometheus',
    answers: { 200: response('text/plain', z.string(), 'Metrics') },
    problems: ['not-found', 'busy'],
    isServed: ({ admin }) => admin !== null,
    setup: ({ service }) => coalesce(() => metricsText(service), limits.metricsEveryMs),
    handle: async ({ res }, { service }, metrics) =>
      res.type(service.instruments.registry.contentType).send(await metrics('all')),
  }),
};

/** The metrics of all processes, as Prometheus reads them. */
async function metricsText({ metricsOfAll, instruments }: ServiceContext): Promise<string> {
  const text = metricsOfAll === null ? await instruments.registry.metrics() : await metricsOfAll();
  if (text === null) throw busy('worker-silent');
  return text;
}

/** Runs all checks concurrently. @returns `ok` or the error by store */
export async function runChecks(
  checks: Readonly<Record<string, () => Promise<void>>>,
): Promise<Record<string, string>> {
  const outcome = (check: () => Promise<void>) =>
    check().then(
      () => 'ok',
      (error) => String(error?.message ?? error),
    );
  const entries = Object.entries(checks).map(async ([name, check]) => [name, await outcome(check)]);
  return Object.fromEntries(await Promise.all(entries));
}
