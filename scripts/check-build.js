/** Run by `npm run build` before the compiler, whose own error names a file but not what to do about it. */
import { accessSync, constants, existsSync, mkdirSync, readdirSync } from 'node:fs';
import path from 'node:path';

if (!existsSync(path.resolve('node_modules/typescript'))) {
  process.stderr.write(
    'The compiler is a development dependency, which is not installed here. Start the compiled service with ' +
      '`node --enable-source-maps --max-semi-space-size=64 dist/main.js`, or run `npm ci` to build it.\n',
  );
  process.exit(1);
}
const folder = path.resolve('dist');
try {
  mkdirSync(folder, { recursive: true });
  accessSync(folder, constants.W_OK | constants.X_OK);
  for (const file of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    accessSync(path.join(folder, file), constants.W_OK);
  }
} catch (error) {
  const owner = `${process.getuid?.() ?? '$UID'}:${process.getgid?.() ?? '$GID'}`;
  const denied = existsSync(folder) ? folder : path.dirname(folder);
  process.stderr.write(
    `This user cannot write the compiled service to ${denied} (${error.code}). Change the owner with ` +
      `sudo chown -R ${owner} ${denied}, or copy the project to a folder of your own and run it there.\n`,
  );
  process.exitCode = 1;
}
