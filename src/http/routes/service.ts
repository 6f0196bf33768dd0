/** Routes for operators and tools: health, readiness, metrics, strategies, the API description. */
import { type Request, type Response, Router } from 'express';
import { coalesce } from '../../concurrency/coalesce.ts';
import { limits } from '../../config/limits.ts';
import type { StrategyDescription } from '../../domain/guarantees.ts';
import type { LockDescription } from '../../locks/lock.ts';
import type { Instruments } from '../../metrics/instruments.ts';
import type { Degradation } from '../../metrics/loop-health.ts';
import { type Assets, type Body, bodyOf, sendBody } from '../assets.ts';
import { openApiDocument } from '../openapi.ts';

export interface ServiceContext {
  readonly active: string;
  readonly lock: string;
  readonly strategies: readonly StrategyDescription[];
  readonly locks: readonly LockDescription[];
  readonly instruments: Instruments;
  /** Reads the metrics of all worker processes, or null when unavailable. Null: the service is one process. */
  readonly metricsOfAll: (() => Promise<string | null>) | null;
  /** Failing background work. */
  readonly degraded: () => readonly Degradation[];
  /** Checks by store; a check throws when its store does not answer. */
  readonly checks: Readonly<Record<string, () => Promise<void>>>;
}

/**
 * Public routes: health and strategies.
 * @param mayReadCauses whether the client may read errors, which name addresses of the stores
 */
export function serviceRoutes(
  context: ServiceContext,
  mayReadCauses: (req: Request, res: Response) => Promise<boolean>,
): Router {
  const router = Router();
  const readiness = coalesce(() => runChecks(context.checks));

  // Liveness ignores the stores (see /readyz): otherwise an outage of a store would restart the service.
  router.get('/healthz', (_req, res) => {
    res.json({ status: 'ok' });
  });

  router.get('/readyz', async (req, res) => {
    const isOpen = await mayReadCauses(req, res);
    const found = Object.entries(await readiness('all'));
    const ready = found.every(([, result]) => result === 'ok');
    const shown = (result: string) => (isOpen || result === 'ok' ? result : 'does not answer');
    const stores = Object.fromEntries(found.map(([name, result]) => [name, shown(result)]));
    const degraded = context
      .degraded()
      .map(({ what, detail }) => ({ what, detail: isOpen ? detail : 'for administrators only' }));
    const status = degraded.length === 0 ? 'ok' : 'degraded';
    res.status(ready ? 200 : 503).json({
      status: ready ? status : 'unavailable',
      stores,
      ...(degraded.length > 0 && { degraded }),
    });
  });

  router.get('/strategies', (_req, res) => {
    const { active, lock, strategies, locks } = context;
    res.json({ active, lock, strategies, locks });
  });
  return router;
}

/** Metrics and API description; with ADMIN_PORT on that port only. */
export function operationRoutes(context: ServiceContext, assets: Assets): Router {
  const router = Router();
  const { registry } = context.instruments;
  const metrics = coalesce(() => metricsText(context), limits.metricsEveryMs);
  router.get('/metrics', async (_req, res) => {
    res.type(registry.contentType).send(await metrics('all'));
  });

  let document: Promise<Body> | null = null;
  router.get('/openapi.json', async (req, res) => {
    document ??= bodyOf('json', JSON.stringify(openApiDocument())); // few processes are asked for it
    sendBody(req, res, await document);
  });
  const docs = bodyOf('html', docsPage(assets));
  router.get('/docs', async (req, res) => sendBody(req, res, await docs));
  return router;
}

/** The metrics of all processes, as Prometheus reads them. */
export const metricsText = async ({ metricsOfAll, instruments }: ServiceContext): Promise<string> =>
  (await metricsOfAll?.()) ?? (await instruments.registry.metrics());

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

/** Swagger UI: its style and script are built like those of the pages. */
const docsPage = (assets: Assets): string => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Stampede: the API</title>
<link rel="stylesheet" href="${assets.url('docs.css')}">
<link rel="icon" type="image/svg+xml" href="${assets.url('icon.svg')}">
</head>
<body>
<div id="api"></div>
<script type="module" src="${assets.url('docs.js')}"></script>
</body>
</html>
`;
