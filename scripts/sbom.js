/**
 * Prints the software bill of materials of a production install, as CycloneDX JSON, from the lock file.
 *
 * `npm sbom --omit=dev` also leaves out production packages that a development dependency uses, such as pg and ioredis. So npm reads
 * a copy of the project without development dependencies.
 */
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const temporary = mkdtempSync(path.join(tmpdir(), 'stampede-sbom-'));
try {
  const {
    devDependencies: _,
    scripts: __,
    ...project
  } = JSON.parse(readFileSync(`${root}package.json`, 'utf8'));
  const folder = path.join(temporary, project.name); // npm names the component after its folder
  mkdirSync(folder);
  for (const file of ['package-lock.json', '.npmrc']) cpSync(root + file, path.join(folder, file));
  writeFileSync(path.join(folder, 'package.json'), JSON.stringify(project));
  const npm = (command) =>
    execFileSync('npm', command.split(' '), { cwd: folder, encoding: 'utf8', maxBuffer: 2 ** 26 });
  npm('install --package-lock-only --offline --no-audit');
  process.stdout.write(npm('sbom --package-lock-only --sbom-format=cyclonedx --omit=optional'));
} finally {
  rmSync(temporary, { recursive: true });
}
