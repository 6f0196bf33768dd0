/** The system's Chromium: one for the whole run, which starts when the first test asks for it. */
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { delimiter, join } from 'node:path';
import { type BrowserServer, chromium } from 'playwright-core';

export const executablePath = [
  process.env.CHROMIUM,
  ...(process.env.PATH ?? '').split(delimiter).map((folder) => join(folder, 'chromium')),
]
  .filter((path) => path !== undefined)
  .find((path) => existsSync(path));

/** @returns a URL that answers where to connect to the browser */
export async function shareBrowser(): Promise<{ readonly url: string; close(): Promise<void> }> {
  let browser: Promise<BrowserServer> | null = null;
  const server = createServer(async (_request, response) => {
    browser ??= chromium.launchServer({ executablePath: executablePath ?? '', args: ['--no-sandbox'] });
    response.end(await browser.then((one) => one.wsEndpoint(), String));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  server.unref();
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      server.close();
      server.closeAllConnections();
      await browser?.then((one) => one.close()).catch(() => {});
    },
  };
}
