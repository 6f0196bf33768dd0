/** The Express application: routes and error handling. */
import express, { type ErrorRequestHandler, type Express, type Request, type Response } from 'express';
import helmet from 'helmet';
import { storeFailure } from '../store/failures/any-store.ts';
import { KeyReusedError } from '../store/postgres/idempotency.ts';
import { administration, isAdministrator, noAdministration } from './admin.ts';
import type { HttpContext } from './context.ts';
import { hostMistake } from './node-server.ts';
import { busy, ProblemError, problemBody, sendProblem } from './problems.ts';
import { purchaseRoute } from './purchase/route.ts';
import { boundReads } from './reads.ts';
import { type ConsoleContext, consoleRoutes } from './routes/console.ts';
import { eventRoutes } from './routes/events.ts';
import { orderListRoutes } from './routes/order-lists.ts';
import { orderRoutes } from './routes/orders.ts';
import { missingPage, pageRoutes } from './routes/pages.ts';
import { pointRoutes } from './routes/points.ts';
import { saleRoutes } from './routes/sales.ts';
import { metricsText, operationRoutes, runChecks, serviceRoutes } from './routes/service.ts';
import { taskRoutes } from './routes/tasks.ts';
import { ticketRoutes } from './routes/tickets.ts';
import { waitlistRoutes } from './routes/waitlist.ts';
import { watchResponse } from './unread-responses.ts';

export function createApp(context: HttpContext): Express {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.set('query parser', 'simple');

  app.use((req, res, next) => {
    watchResponse(res);
    const mistake = hostMistake(req);
    if (mistake === null) next();
    else sendProblem(res.set('Connection', 'close'), problemBody('invalid-request', mistake));
  });
  // Purchases that purchase-listener.ts does not handle come first: they need no middleware for browsers.
  app.use(purchaseRoute(context.purchases, context.ticketing?.gate ?? null));
  // Most answers are a customer's own; a cache in between may ignore Authorization. Other routes say otherwise.
  app.use((_req, res, next) => {
    res.setHeader('Cache-Control', 'private, no-store');
    next();
  });
  app.use(
    helmet({
      // The service speaks plain HTTP; HSTS is the decision of the proxy in front of it.
      strictTransportSecurity: false,
      contentSecurityPolicy: { directives: { upgradeInsecureRequests: null } },
    }),
  );
  const { adminTokens, record, onUnrecorded } = context;
  const { instruments } = context.service;
  const admin =
    adminTokens === null ? noAdministration : administration(adminTokens, record, onUnrecorded, instruments);
  const mayReadCauses = async (req: Request, res: Response) =>
    adminTokens !== null && isAdministrator(adminTokens, req, res);
  app.use(serviceRoutes(context.service, mayReadCauses));
  if (adminTokens !== null) {
    app.use(operationRoutes(context.service, context.assets));
    app.use(consoleRoutes(consoleContext(context), admin));
  }
  // Not bounded: they read nothing, or by other connections, or bound themselves.
  app.use(pageRoutes(context, context.assets));
  app.use(taskRoutes(context.tasks, admin));
  app.use(boundReads(context.reads));
  app.use(saleRoutes(context, admin));
  app.use(eventRoutes(context));
  app.use(orderListRoutes(context, admin));
  app.use(orderRoutes({ ...context, instruments }, admin));
  app.use(pointRoutes(context, admin));
  app.use(waitlistRoutes(context));
  if (context.ticketing !== null) app.use(ticketRoutes(context.ticketing.routes, context.callers));
  app.use(missingPage(context, context.assets));
  app.use((req, res) =>
    sendProblem(
      res,
      problemBody('not-found', `No route for ${req.method} ${req.path.slice(0, 200)}. See /docs.`),
    ),
  );
  app.use(errorHandler(context));
  return app;
}

function consoleContext({ service, reads, strategy, stopping, onStoreError }: HttpContext): ConsoleContext {
  return {
    metrics: () => metricsText(service),
    degraded: service.degraded,
    stores: () => runChecks(service.checks),
    reconcile: { mirror: strategy.mirror, ...reads },
    stopping,
    onReadError: (error) => onStoreError('watch-metrics', error),
  };
}

/** Turns every error into a problem: of the client, of a store, or a defect of the service. */
function errorHandler({ onError }: HttpContext): ErrorRequestHandler {
  return (error, req, res, next) => {
    if (res.headersSent) return next(error);
    if (error instanceof ProblemError) return sendProblem(res, error.body);
    if (error instanceof KeyReusedError) {
      const detail = 'Nothing was changed. Send a new Idempotency-Key with a new request.';
      return sendProblem(res, problemBody('key-reused', detail));
    }
    const client = clientProblem(error);
    if (client !== null) return sendProblem(res, problemBody(...client));
    const store = storeProblem(error);
    if (store !== null) return sendProblem(res, store.body);
    onError(error, { method: req.method, path: req.path });
    const detail = 'The error was logged. It is safe to repeat a purchase.';
    return sendProblem(res, problemBody('internal-error', detail));
  };
}

type ClientSlug = 'invalid-request' | 'too-large' | 'unsupported-media-type';

/** Errors of body-parser and the router. */
function clientProblem(error: { type?: string; status?: number }): [ClientSlug, string] | null {
  switch (error.type) {
    case 'entity.too.large':
      return ['too-large', 'The body exceeds the limit of this route.'];
    case 'entity.parse.failed':
      return ['invalid-request', 'The body is not valid JSON.'];
    case 'encoding.unsupported':
    case 'charset.unsupported':
      return ['unsupported-media-type', 'Send uncompressed JSON in UTF-8.'];
  }
  const clientError = error.status !== undefined && error.status >= 400 && error.status < 500;
  return clientError ? ['invalid-request', 'The request is malformed.'] : null;
}

function storeProblem(error: unknown): ProblemError | null {
  const { kind, reason } = storeFailure(error);
  if (kind === 'defect') return null;
  if (kind !== 'unknown') return busy(reason);
  const detail = 'A store did not answer. Check the result before you repeat the request.';
  return new ProblemError('unknown-outcome', detail, { reason });
}
