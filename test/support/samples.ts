/** The samples of the documents, and a place in which their commands run as they are written. */
import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

export const root = fileURLToPath(new URL('../../', import.meta.url));
export const text = (file: string) => readFileSync(path.join(root, file), 'utf8');

/** The samples of a page, each with the file that the page names for it: "… in `path`:". One in a list is indented. */
export const samplesOf = (page: string) =>
  [...page.matchAll(/(?:`([\w./-]+)`:\n\n)?^( *)```(\w+)\n([\s\S]*?)^\2```$/gm)].map(
    ([, file, indent, language, code]) => ({
      file,
      language: language!,
      code: code!.replaceAll(new RegExp(`^${indent}`, 'gm'), ''),
    }),
  );
export const commandsOf = (page: string) =>
  samplesOf(page).flatMap(({ language, code }) => (language === 'sh' ? code : []));
/** The part of a page below a heading of the second level. */
export const below = (page: string, heading: string) =>
  page.split(`\n## ${heading}\n`)[1]!.split('\n## ')[0]!;

const { PATH, HOME } = process.env;
/** @throws with what the command printed, if it fails */
export const execute = (cwd: string, env: object, command: string, ...args: string[]) =>
  promisify(execFile)(command, args, { cwd, env: { PATH, HOME, ...env } }).then(
    ({ stdout, stderr }) => stdout + stderr,
    ({ stdout, stderr }) => {
      throw new Error(`${stdout}${stderr}`);
    },
  );

/** What `npm start` is within a sample: the service sells a unit to a customer who repeats, prints how it decided, and stops. */
const START = `
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
const { ADMIN_TOKEN } = process.env;
const env = { ...process.env, PORT: '0', LOG_LEVEL: 'info' };
const service = spawn(process.execPath, [process.argv[2]], { env, stdio: ['ignore', 'pipe', 'inherit'] });
service.on('exit', (code) => { process.exitCode = code ?? 1; });
const post = async (url, body) => {
  const headers = { 'Content-Type': 'application/json', ...(ADMIN_TOKEN && { Authorization: 'Bearer ' + ADMIN_TOKEN }) };
  const answer = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
  return [answer.status, await answer.json()];
};
let listening = false;
for await (const line of createInterface({ input: service.stdout })) {
  const { port, strategy, lock, workers, msg } = JSON.parse(line);
  if (msg !== 'listening' || listening) { if (!listening) console.error(line); continue; }
  listening = true;
  const url = 'http://127.0.0.1:' + port + '/sales';
  const [, { id }] = await post(url, { name: 'started', stock: 1, priceCents: 1 });
  let status;
  do [status] = await post(url + '/' + id + '/orders', { userId: 'ann' });
  while (status === 503);
  console.log('npm start:', strategy, lock, workers, 'sale', id, status);
  service.kill();
}
`;

/**
 * Makes the programs that samples name and that are not called as they are: npm runs the build instead of building it again, and sudo
 * does nothing, because a test installs nothing.
 * @param folder an existing one @returns a folder for the front of PATH
 */
export function standIns(folder: string, build = root): string {
  const bin = path.join(folder, 'bin');
  mkdirSync(bin);
  writeFileSync(path.join(folder, 'start.mjs'), START);
  const quoted = (file: string) => `'${file.replaceAll("'", `'\\''`)}'`;
  const npm = `#!/bin/sh
case "$1 $2" in
  'start ') exec node ${quoted(path.join(folder, 'start.mjs'))} ${quoted(path.join(build, 'dist/commands/start.js'))} ;;
  'run reconcile' | 'run audit' | 'run migrate') command=$2; shift 2; [ "$1" != -- ] || shift ;;
  *) echo "not known to the test: npm $*" >&2; exit 1 ;;
esac
exec node ${quoted(path.join(build, 'dist/commands/'))}"$command.js" "$@"
`;
  writeFileSync(path.join(bin, 'npm'), npm);
  writeFileSync(path.join(bin, 'sudo'), '#!/bin/sh\n');
  for (const name of ['npm', 'sudo']) chmodSync(path.join(bin, name), 0o755);
  return bin;
}
