/** Whether the compiler can write its folder: its own error names a file, and not what to do. Run by `npm run build`. */
import { accessSync, constants, existsSync, mkdirSync, readdirSync } from 'node:fs';
import path from 'node:path';

const folder = path.resolve('dist');
try {
  mkdirSync(folder, { recursive: true });
  accessSync(folder, constants.W_OK | constants.X_OK);
  for (const file of readdirSync(folder, { recursive: true, encoding: 'utf8' })) {
    accessSync(path.join(folder, file), constants.W_OK);
  }
} catch (error) {
  const owner = `${process.getuid?.() ?? '$UID'}:${process.getgid?.() ?? '$GID'}`;
  const refused = existsSync(folder) ? folder : path.dirname(folder);
  process.stderr.write(
    `This user cannot write to ${refused}, where the compiled service goes (${error.code}): take the folder over with ` +
      `sudo chown -R ${owner} ${refused}, or copy the project to a folder of your own and run it there.\n`,
  );
  process.exitCode = 1;
}
