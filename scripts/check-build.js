/**
 * Run by `npm run build` before the compiler, whose own error names a file but not what to do about it. Announces the first build,
 * which takes a while and prints nothing.
 */
import { accessSync, constants, existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';

const { engines } = JSON.parse(readFileSync('package.json', 'utf8'));
const [major, minor] = process.versions.node.split('.').map(Number);
const [wantedMajor, wantedMinor] = (/(\d+)\.(\d+)/.exec(engines.node) ?? []).slice(1).map(Number);
if (major < wantedMajor || (major === wantedMajor && minor < wantedMinor)) {
  process.stderr.write(`Node.js ${process.versions.node} is too old: Stampede needs ${engines.node}.\n`);
  process.exit(1);
}
if (!existsSync(path.resolve('node_modules/typescript'))) {
  process.stderr.write(
    'The compiler is a development dependency, which is not installed here. Start the compiled service with ' +
      '`node --enable-source-maps --max-semi-space-size=64 dist/commands/start.js`, or run `npm ci` to build it.\n',
  );
  process.exit(1);
}
const folder = path.resolve('dist');
try {
  if (!existsSync(folder)) mkdirSync(folder); // "recursive" would report ENOENT for a read-only file system
  accessSync(folder, constants.W_OK | constants.X_OK);
  for (const file of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    accessSync(path.join(folder, file), constants.W_OK);
  }
  if (!existsSync(path.join(folder, '.tsbuildinfo')))
    process.stderr.write('Building the service, for the first start only: 5 to 30 s …\n');
} catch (error) {
  const owner = `${process.getuid?.() ?? '$UID'}:${process.getgid?.() ?? '$GID'}`;
  const denied = existsSync(folder) ? folder : path.dirname(folder);
  const copy = 'copy the project to a folder of your own and run it there';
  const advice = {
    EROFS: `The file system is read-only: ${copy}`,
    ENOSPC: 'The disk is full: free some space',
    EDQUOT: 'The quota of this user is used up: free some space',
  };
  process.stderr.write(
    `This user cannot write the compiled service to ${denied} (${error.code}). ` +
      `${advice[error.code] ?? `Change the owner with sudo chown -R ${owner} '${denied}', or ${copy}`}.\n`,
  );
  process.exitCode = 1;
}
