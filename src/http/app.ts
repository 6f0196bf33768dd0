/** The Express application: routes and error handling. */
import express, { type ErrorRequestHandler, type Express } from 'express';
import helmet from 'helmet';
import { storeFailure } from '../store/failures/any-store.ts';
import { KeyReusedError } from '../store/postgres/idempotency.ts';
import { administration } from './admin.ts';
import type { HttpContext } from './context.ts';
import { hostMistake } from './node-server.ts';
import { busy, ProblemError, problemBody, sendProblem } from './problems.ts';
import { boundReads } from './reads.ts';
import { type Route, routerOf } from './route.ts';
import { docsRoutes } from './routes/docs.ts';
import { missingPage, pageRoutes } from './routes/pages.ts';
import { routes } from './routes/registry.ts';
import { watchResponse } from './unread-responses.ts';

export function createApp(context: HttpContext): Express {
  const app = express();
  const { adminTokens, record, onUnrecorded, service } = context;
  const admin = adminTokens && administration(adminTokens, record, onUnrecorded, service.instruments);
  const routerWith = (isIn: (route: Route) => boolean) =>
    routerOf(Object.values(routes).filter(isIn), { ...context, admin });
  app.disable('x-powered-by');
  app.disable('etag');
  app.set('query parser', 'simple');

  app.use((req, res, next) => {
    watchResponse(res);
    const mistake = hostMistake(req);
    if (mistake === null) next();
    else sendProblem(res.set('Connection', 'close'), problemBody('invalid-request', mistake));
  });
  // Purchases that purchase/listener.ts does not handle come first: they need no middleware for browsers.
  app.use(routerWith(({ by }) => by === 'ticket'));
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
  app.use(routerWith(({ isUnbounded }) => isUnbounded === true));
  if (admin !== null) app.use(docsRoutes(context.assets));
  app.use(pageRoutes(context, context.assets));
  app.use(boundReads(context.reads));
  app.use(routerWith(({ by, isUnbounded }) => by !== 'ticket' && isUnbounded !== true));
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

/** Turns every error into a problem: of the client, of a store, or a defect of the service. */
function errorHandler({ onError }: HttpContext): ErrorRequestHandler {
  return (error, req, res, next) => {
    if (res.headersSent) return next(error);
    const problem = error instanceof ProblemError ? error : (clientProblem(error) ?? storeProblem(error));
    if (problem !== null) return sendProblem(res, problem.body);
    onError(error, { method: req.method, path: req.path });
    const detail = 'The error was logged. It is safe to repeat a purchase.';
    return sendProblem(res, problemBody('internal-error', detail));
  };
}

/** Errors of idempotency keys, body-parser and the router. */
function clientProblem(error: { type?: string; status?: number }): ProblemError | null {
  if (error instanceof KeyReusedError) {
    const detail = 'Nothing was changed. Send a new Idempotency-Key with a new request.';
    return new ProblemError('key-reused', detail);
  }
  switch (error.type) {
    case 'entity.too.large':
      return new ProblemError('too-large', 'The body exceeds the limit of this route.');
    case 'entity.parse.failed':
      return new ProblemError('invalid-request', 'The body is not valid JSON.');
    case 'encoding.unsupported':
    case 'charset.unsupported':
      return new ProblemError('unsupported-media-type', 'Send uncompressed JSON in UTF-8.');
  }
  const clientError = error.status !== undefined && error.status >= 400 && error.status < 500;
  return clientError ? new ProblemError('invalid-request', 'The request is malformed.') : null;
}

function storeProblem(error: unknown): ProblemError | null {
  const { kind, reason } = storeFailure(error);
  if (kind === 'defect') return null;
  if (kind !== 'unknown') return busy(reason);
  const detail = 'A store did not answer. Check the result before you repeat the request.';
  return new ProblemError('unknown-outcome', detail, { reason });
}
