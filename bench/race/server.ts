/**
 * Serves the page of a race on loopback: files, views as server-sent events, and commands as JSON, accepted from this page only.
 */
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { strategies } from '../../src/strategies/registry.ts';
import { bounds, raceFaults, raceOptions } from './options.ts';
import { type Race, RaceError } from './race.ts';
import type { Choices, RaceView } from './view.ts';

const BODY_BYTES = 10_000;
const built = fileURLToPath(new URL('../../dist/web/', import.meta.url));
const files: Readonly<Record<string, string>> = {
  'icon.svg': 'image/svg+xml',
  'style.css': 'text/css; charset=utf-8',
  'race.css': 'text/css; charset=utf-8',
  'race.js': 'text/javascript; charset=utf-8',
};
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

export interface RaceServer extends AsyncDisposable {
  readonly url: string;
  /** Sends a view to every page. */
  show(view: RaceView): void;
}

/** @param port 0: a free one. @throws when it is taken */
export async function openServer(race: Race, port: number): Promise<RaceServer> {
  const viewers = new Set<ServerResponse>();
  const send = (response: ServerResponse, view: RaceView): void => {
    // A slow page misses intermediate views.
    if (!response.writableNeedDrain) response.write(`data: ${JSON.stringify(view)}\n\n`);
  };
  const watch = (response: ServerResponse): void => {
    response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
    viewers.add(response);
    response.on('close', () => viewers.delete(response));
    send(response, race.view);
  };
  const server = createServer((request, response) => {
    const own = `127.0.0.1:${(server.address() as AddressInfo).port}`;
    answer(race, watch, own, request, response).catch((error) => {
      const status = error instanceof RaceError ? 409 : error instanceof SyntaxError ? 400 : 500;
      if (!response.headersSent) reply(response, status, { problem: (error as Error).message });
    });
  });
  server.listen(port, '127.0.0.1');
  await once(server, 'listening').catch((cause) => {
    throw new Error(`port ${port} cannot be used (${cause.code}); choose another one: --port n`, { cause });
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    show: (view) => {
      for (const viewer of viewers) send(viewer, view);
    },
    async [Symbol.asyncDispose]() {
      server.close();
      server.closeAllConnections();
    },
  };
}

async function answer(
  race: Race,
  watch: (response: ServerResponse) => void,
  own: string,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const path = request.url ?? '/';
  const { host, origin, 'content-type': type } = request.headers;
  response.setHeader('content-security-policy', POLICY);
  response.setHeader('x-content-type-options', 'nosniff');
  // Another site, or a DNS name that resolves to loopback, must not start processes on this machine.
  if (host !== own || (origin !== undefined && origin !== `http://${own}`))
    return reply(response, 403, { problem: `open http://${own}` });
  if (request.method === 'POST') {
    if (type !== 'application/json') return reply(response, 415, { problem: 'send JSON' });
    return command(race, path, JSON.parse(await bodyOf(request)), response);
  }
  const file = files[path.slice(1)];
  if (request.method !== 'GET') reply(response, 405, { problem: 'GET or POST' });
  else if (path === '/events') watch(response);
  else if (path === '/') response.writeHead(200, { 'content-type': 'text/html; charset=utf-8' }).end(page);
  else if (file === undefined) reply(response, 404, { problem: 'there is no such page' });
  else response.writeHead(200, { 'content-type': file }).end(await readFile(`${built}${path.slice(1)}`));
}

async function command(race: Race, path: string, body: unknown, response: ServerResponse): Promise<void> {
  const given = (body ?? {}) as Readonly<Record<string, unknown>>;
  if (path === '/start') {
    const options = raceOptions(given);
    if (!('rate' in options)) return reply(response, 400, { problem: options.join('; ') });
    race.start(options);
  } else if (path === '/strike') {
    const fault = raceFaults.find(({ name }) => name === given.fault);
    if (fault === undefined) return reply(response, 400, { problem: 'there is no such fault' });
    race.strike(fault);
  } else if (path === '/stop') await race.stop();
  else return reply(response, 404, { problem: 'there is no such command' });
  reply(response, 200, {});
}

/** @throws RaceError when it is too long */
async function bodyOf(request: IncomingMessage): Promise<string> {
  let body = '';
  for await (const chunk of request) {
    body += chunk;
    if (body.length > BODY_BYTES) throw new RaceError('the command is too long');
  }
  return body;
}

function reply(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
