// Generates the Prisma client into src/generated after `npm install`.
//
// A production install (`npm ci --omit=dev`) has no Prisma CLI and needs none: dist/ contains the generated client.
//
// `prisma generate` reads the schema with WebAssembly alone, but its command line insists on the native schema engine and
// downloads it when it is missing. Stampede never runs that binary (src/store/postgres/migrate.ts applies the migrations).
// Naming any existing executable in its place lets the installation work offline.
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

function prismaCli() {
  try {
    return createRequire(import.meta.url).resolve('prisma/build/index.js');
  } catch {
    return null;
  }
}

const cli = prismaCli();
if (cli === null) {
  process.stdout.write(
    'The Prisma CLI is not installed (production install): src/generated is left as it is.\n',
  );
} else {
  const result = spawnSync(process.execPath, [cli, 'generate', '--no-hints'], {
    cwd: fileURLToPath(new URL('..', import.meta.url)),
    env: { PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, CHECKPOINT_DISABLE: '1', ...process.env },
    encoding: 'utf8',
  });
  if (result.status !== 0) {
    process.stderr.write(
      `${result.stdout}${result.stderr}\nprisma generate failed. Run "npm run postinstall" to try again.\n`,
    );
    process.exit(1);
  }
}
