/** Every script of package.json is run: by .ci/run, by another script, or here. */
import { spawn, spawnSync } from 'node:child_process';
import { appendFileSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';
import { expectNoProcessOn } from './local/support.ts';
import { call, createSale, eventually } from './support/client.ts';
import { opened } from './support/opened.ts';
import { copySources } from './support/service.ts';

const root = fileURLToPath(new URL('../', import.meta.url));
const { scripts } = JSON.parse(readFileSync(`${root}package.json`, 'utf8')) as {
  scripts: Readonly<Record<string, string>>;
};
const copy = opened(copySources);

/** `npm run dev` in the copy, in a separate process group as in a terminal. */
function startDev() {
  const { PATH, HOME } = process.env;
  const env = { PATH, HOME, PORT: '0', WORKERS: '2' };
  const npm = spawn('npm', ['run', '--silent', 'dev'], { cwd: copy.folder, env, detached: true });
  onTestFinished(() => void spawnSync('kill', ['-KILL', '--', `-${npm.pid}`]));
  let log = '';
  for (const output of [npm.stdout, npm.stderr])
    output.on('data', (chunk) => {
      log += chunk;
    });
  /** Waits until it listens for the n-th time. @returns the URL */
  const listening = async (n: number) => {
    const port = await eventually(
      async () => {
        if (npm.exitCode !== null || log.includes('Failed running')) throw new Error(log);
        return [...log.matchAll(/"port":(\d+).*"msg":"listening"/g)][n - 1]?.[1];
      },
      (found) => found !== undefined,
      300_000, // tsx compiles four processes
    );
    return `http://127.0.0.1:${port}`;
  };
  /** Waits until its processes and its stores have ended. */
  const expectNoListener = async () => {
    const left = () => spawnSync('ps', ['-o', 'args=', '-g', `${npm.pid}`], { encoding: 'utf8' }).stdout;
    await expect.poll(left).toBe('');
    await expectNoProcessOn(copy.folder);
  };
  return { npm, listening, expectNoListener };
}

const programs = ['bench', 'bench:locks', 'bench:limits', 'bench:profile', 'race', 'lab', 'pictures'];
/** Run by compose.test.ts, image.test.ts and locks/package.test.ts; the build and the tests themselves; one command of another tool. */
const ELSEWHERE = ['secrets', 'sbom', 'package:locks', 'format', 'test:all', 'build', 'test:nightly'];

/** The scripts that commands run, including npm's hooks. */
function scriptsIn(commands: string): string[] {
  const called = [...commands.matchAll(/\bnpm (?:run (?:--silent )?)?([\w:]+)/g)].map(([, name]) => name!);
  const found = called
    .flatMap((name) => [`pre${name}`, name === 'install' ? 'postinstall' : name])
    .filter((name) => name in scripts);
  return found.flatMap((name) => [name, ...scriptsIn(scripts[name]!)]);
}
const inCi = scriptsIn(readFileSync(`${root}.ci/run`, 'utf8').replace(/(^|\s)#.*$/gm, ''));

it('every script is run by .ci/run, by another script or by a test', () => {
  const run = [...programs, ...ELSEWHERE, 'audit', 'reconcile', 'dev'];
  expect([...inCi, ...run]).toEqual(expect.arrayContaining(Object.keys(scripts)));
});

it('npm run dev, with its own stores and two workers, follows a change and ends with Ctrl-C', async () => {
  const dev = startDev();
  const { id } = await createSale(await dev.listening(1), 3);
  appendFileSync(path.join(copy.folder, 'src/config/suggest.ts'), '\n');
  const sale = await call(`${await dev.listening(2)}/sales/${id}`);
  expect(sale).toMatchObject({ status: 200, body: { stock: 3 } });
  process.kill(-dev.npm.pid!, 'SIGINT'); // as Ctrl-C
  await dev.expectNoListener();
}, 600_000);

it('a signal to npm reaches what runs for long: the shell does not stand in between', () => {
  const long = [...programs, 'bench:smoke', 'dev', 'start', 'audit', 'reconcile'];
  for (const name of long) expect(scripts[name], name).toMatch(/(^|&& )exec node [^&]*$/);
});

it.each([
  ...['bench:locks', 'race', 'pictures', 'reconcile'].map((name) => [
    name,
    '--helpp',
    'there is no option --helpp; did you mean "--help"?',
  ]),
  ['audit', 'verify --head', "Option '--head <value>' argument missing"],
])('npm run %s -- %s is refused with one line', (name, args, line) => {
  // As npm does, without the build: the global setup has made it.
  const command = `${scripts[name!]!.replace('node scripts/build.js && ', '')} ${args}`;
  const env = { ...process.env, NO_COLOR: '1' };
  const { status, stdout, stderr } = spawnSync('/bin/sh', ['-c', command], {
    cwd: root,
    env,
    encoding: 'utf8',
  });
  expect({ status, stdout, stderr }).toEqual({ status: 2, stdout: '', stderr: `${line}\n` });
});
