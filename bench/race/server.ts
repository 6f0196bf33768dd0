/**
 * Serves the page of a race on loopback: files, views as server-sent events, and commands as JSON, accepted from this page only.
 */
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import express, { type ErrorRequestHandler, type RequestHandler, type Response, Router } from 'express';
import { strategies } from '../../src/strategies/registry.ts';
import { bounds, raceFaults, raceOptions } from './options.ts';
import { type Race, RaceError } from './race.ts';
import type { Choices, RaceView } from './view.ts';

const built = fileURLToPath(new URL('../../dist/web/', import.meta.url));
const files = ['/icon.svg', '/style.css', '/race.css', '/race.js'];
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const choices: Choices = {
  strategies: [...strategies.values()].map(({ description: { name, summary } }) => ({ name, summary })),
  faults: raceFaults.map(({ name, title, happens }) => ({ name, title, happens })),
  bounds,
};

const page = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Stampede: the race</title>
<link rel="icon" href="/icon.svg">
<link rel="stylesheet" href="/style.css">
<link rel="stylesheet" href="/race.css">
<script type="module" src="/race.js"></script>
</head>
<body data-choices="${JSON.stringify(choices).replaceAll('&', '&amp;').replaceAll('"', '&quot;')}">
<noscript><p>The race needs JavaScript. <code>npm run race -- --headless</code> runs it without a page.</p></noscript>
</body>
</html>
`;

/** @param port 0: a free one. @throws when it is taken */
export async function openServer(race: Race, port: number) {
  const viewers = new Set<Response>();
  const send = (response: Response, view: RaceView): void => {
    // A slow page misses intermediate views.
    if (!response.writableNeedDrain) response.write(`data: ${JSON.stringify(view)}\n\n`);
  };
  const app = express().disable('x-powered-by').disable('etag');
  const server = createServer(app);
  app.use(fromOwnPage(() => (server.address() as AddressInfo).port));
  app.get('/', (_, response) => void response.type('html').send(page));
  app.get(files, ({ path }, response) => response.sendFile(path.slice(1), { root: built }));
  app.get('/events', (_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
    viewers.add(response);
    response.on('close', () => viewers.delete(response));
    send(response, race.view);
  });
  app.use(commands(race));
  app.use(((error, _request, response, next) => {
    if (response.headersSent) return next(error);
    const status = error instanceof RaceError ? 409 : (error.status ?? 500);
    response.status(status).json({ problem: (error as Error).message });
  }) satisfies ErrorRequestHandler);
  server.listen(port, '127.0.0.1');
  await once(server, 'listening').catch((cause) => {
    throw new Error(`port ${port} cannot be used (${cause.code}); choose another one: --port n`, { cause });
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    /** Sends a view to every page. */
    show: (view: RaceView): void => {
      for (const viewer of viewers) send(viewer, view);
    },
    async [Symbol.asyncDispose]() {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** Another site, or a DNS name that resolves to loopback, must not start processes on this machine. */
function fromOwnPage(port: () => number): RequestHandler {
  return ({ headers: { host, origin } }, response, next) => {
    const own = `127.0.0.1:${port()}`;
    response.set({ 'content-security-policy': POLICY, 'x-content-type-options': 'nosniff' });
    if (host === own && (origin === undefined || origin === `http://${own}`)) return next();
    response.status(403).json({ problem: `open http://${own}` });
  };
}

function commands(race: Race): Router {
  const router = Router();
  router.post('/{*path}', (request, response, next) => {
    if (request.headers['content-type'] === 'application/json') return next();
    response.status(415).json({ problem: 'send JSON' });
  });
  router.use(express.json({ limit: '10kb' }));
  router.post('/start', ({ body }, response) => {
    const options = raceOptions(body);
    if (!('rate' in options)) return void response.status(400).json({ problem: options.join('; ') });
    race.start(options);
    response.json({});
  });
  router.post('/strike', ({ body }, response) => {
    const fault = raceFaults.find(({ name }) => name === body.fault);
    if (fault === undefined) return void response.status(400).json({ problem: 'there is no such fault' });
    race.strike(fault);
    response.json({});
  });
  router.post('/stop', async (_, response) => {
    await race.stop();
    response.json({});
  });
  router.use(
    (_, response) => void response.status(404).json({ problem: 'there is no such page or command' }),
  );
  return router;
}
