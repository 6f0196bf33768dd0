/**
 * Static files, read at start and served from memory. `sendFile` opens a file per request and leaks descriptors when a client
 * pipelines requests without reading responses.
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import type { Response, Router } from 'express';

const MAX_AGE_S = 3_600;

/** `type` is an Express type: `html`, `js`, `css`, `png`. */
export interface StaticFile {
  readonly type: string;
  readonly content: Buffer;
}

export function readStaticFile(folder: string, name: string): StaticFile {
  return { type: path.extname(name).slice(1), content: readFileSync(path.join(folder, name)) };
}

/** Serves files by their path relative to the router. */
export function serveStatic(router: Router, files: Readonly<Record<string, StaticFile>>): void {
  for (const [name, file] of Object.entries(files)) router.get(name, (_req, res) => sendStatic(res, file));
}

function sendStatic(res: Response, { type, content }: StaticFile): void {
  res.type(type).setHeader('Cache-Control', `public, max-age=${MAX_AGE_S}`);
  res.send(content);
}
