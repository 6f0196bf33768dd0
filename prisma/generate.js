// Generates the Prisma client after `npm install`.
//
// `prisma generate` reads the schema with WebAssembly alone, but the command line insists on having the
// native schema engine and downloads it when it is missing. Stampede never uses that binary (migrations are
// applied through WebAssembly, see src/store/postgres/migrate.ts), so any existing executable is named in its place and
// installing works without a connection to Prisma's servers.
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';

const require = createRequire(import.meta.url);
const result = spawnSync(
  process.execPath,
  [require.resolve('prisma/build/index.js'), 'generate', '--no-hints'],
  {
    cwd: fileURLToPath(new URL('..', import.meta.url)),
    env: { PRISMA_SCHEMA_ENGINE_BINARY: process.execPath, CHECKPOINT_DISABLE: '1', ...process.env },
    encoding: 'utf8',
  },
);
if (result.status !== 0) {
  process.stderr.write(
    `${result.stdout}${result.stderr}\nprisma generate failed; run "npm run postinstall" to try again.\n`,
  );
  process.exit(1);
}
