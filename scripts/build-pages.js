/**
 * Bundles the scripts and styles of the pages; part of `npm run build`. Also writes each file compressed (br, gzip), so the service
 * compresses nothing at start. CSS that an entry imports becomes a file beside its script.
 */
import { existsSync, lchownSync, mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import { build } from 'esbuild';

/** A tenth larger than at the highest quality, in a twentieth of the time. */
const FAST = { params: { [constants.BROTLI_PARAM_QUALITY]: 9 } };

/** Missing entries are skipped: the image of the service has no `bench`. */
const entries = [
  { entry: 'src/web/style.css', outfile: 'dist/web/style.css' },
  { entry: 'src/web/icon.svg', outfile: 'dist/web/icon.svg' },
  { entry: 'src/web/shop/main.tsx', outfile: 'dist/web/shop.js' },
  { entry: 'src/web/shop/proof-worker.ts', outfile: 'dist/web/proof-worker.js' },
  { entry: 'src/web/console/main.tsx', outfile: 'dist/web/console.js' },
  { entry: 'src/web/docs.ts', outfile: 'dist/web/docs.js' },
  { entry: 'bench/race/page/main.tsx', outfile: 'dist/web/race.js' },
];

/** @param {{ entry: string, outfile: string }} page */
async function bundle({ entry, outfile }) {
  const { outputFiles } = await build({
    entryPoints: [entry],
    outfile,
    bundle: true,
    minify: true,
    format: 'esm',
    target: ['es2022', 'chrome109', 'firefox115', 'safari16.4'],
    jsx: 'automatic',
    jsxImportSource: 'preact',
    loader: { '.svg': 'copy' },
    legalComments: 'none',
    tsconfigRaw: {},
    logLevel: 'warning',
    write: false,
  });
  for (const { path: file, contents } of outputFiles) {
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, contents);
    writeFileSync(`${file}.br`, brotliCompressSync(contents, FAST));
    writeFileSync(`${file}.gz`, gzipSync(contents, { level: 9 }));
  }
}

await Promise.all(entries.filter(({ entry }) => existsSync(entry)).map(bundle));

// Built by root in another user's project: that user's next build replaces these files.
const { uid, gid } = statSync('.');
if (process.getuid?.() === 0 && uid !== 0) {
  const files = readdirSync('dist', { recursive: true, encoding: 'utf8' });
  for (const file of ['', ...files]) lchownSync(path.join('dist', file), uid, gid);
}
