/**
 * Scripts and styles of the pages, built by scripts/build.js, read at start and served from memory in the encoding that the
 * client accepts. A URL contains a hash of the content, so browsers cache it indefinitely.
 */
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { gzip as gzipAsync } from 'node:zlib';
import { type Request, type RequestHandler, type Response, Router } from 'express';

/** The same folder, seen from src/ and from dist/. */
const FOLDER = fileURLToPath(new URL('../../dist/web/', import.meta.url));
const MAX_AGE_S = 365 * 24 * 3_600;

/** `Content-Encoding` and file suffix, the smallest result first. */
const ENCODINGS = [
  ['br', '.br'],
  ['gzip', '.gz'],
] as const;

/** A body in the encodings that a client may accept. */
export interface Body {
  /** An Express type: `html`, `js`, `css`. */
  readonly type: string;
  readonly content: Buffer;
  readonly encoded: ReadonlyMap<string, Buffer>;
}

interface Asset extends Body {
  readonly hash: string;
}

const gzip = promisify(gzipAsync);

/** Compresses a text that is sent several times. */
export async function bodyOf(type: string, text: string): Promise<Body> {
  const content = Buffer.from(text);
  return { type, content, encoded: new Map([['gzip', await gzip(content)]]) };
}

export function sendBody(req: Request, res: Response, { type, content, encoded }: Body): void {
  const encoding = ENCODINGS.map(([name]) => name).find(
    (name) => encoded.has(name) && req.acceptsEncodings(name) === name,
  );
  res.type(type).vary('Accept-Encoding');
  if (encoding !== undefined) res.setHeader('Content-Encoding', encoding);
  res.send(encoded.get(encoding ?? '') ?? content);
}

export interface Assets {
  /** The URL of a file, such as `shop.js`. */
  url(name: string): string;
  readonly router: Router;
}

/** @throws when the pages were not built */
export function readAssets(folder: string = FOLDER): Assets {
  if (!existsSync(folder))
    throw new Error(`The pages are not built: ${folder} is missing. Run npm run build.`);
  const names = readdirSync(folder).filter((name) => !/\.(br|gz)$/.test(name));
  const assets = new Map(names.map((name) => [name, readAsset(folder, name)]));
  const serve: RequestHandler<{ hash: string; name: string }> = (req, res, next) => {
    const asset = assets.get(req.params.name);
    if (asset === undefined) return next();
    // During a rolling restart, a page of the other version gets this version's file, uncached.
    const isExact = req.params.hash === asset.hash;
    res.setHeader('Cache-Control', isExact ? `public, max-age=${MAX_AGE_S}, immutable` : 'no-store');
    sendBody(req, res, asset);
  };
  const router = Router();
  router.get('/assets/:hash/:name', serve);
  return { url: (name) => `/assets/${assets.get(name)!.hash}/${name}`, router };
}

function readAsset(folder: string, name: string): Asset {
  const file = path.join(folder, name);
  const content = readFileSync(file);
  return {
    type: path.extname(name).slice(1),
    hash: createHash('sha256').update(content).digest('base64url').slice(0, 12),
    content,
    encoded: new Map(ENCODINGS.map(([encoding, suffix]) => [encoding, readFileSync(file + suffix)])),
  };
}
