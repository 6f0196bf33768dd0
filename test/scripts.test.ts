/** Scripts of package.json that run for long. */
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

it('npm run dev, with its own stores and two workers, follows a change and ends with Ctrl-C', async () => {
  const { PATH, HOME } = process.env;
  const env = { PATH, HOME, PORT: '0', WORKERS: '2' };
  // In a process group of its own, as in a terminal.
  const npm = spawn('npm', ['run', '--silent', 'dev'], { cwd: copy.folder, env, detached: true });
  onTestFinished(() => void spawnSync('kill', ['-KILL', '--', `-${npm.pid}`]));
  let log = '';
  for (const output of [npm.stdout, npm.stderr]) output.on('data', (chunk) => (log += chunk));
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
  const { id } = await createSale(await listening(1), 3);
  appendFileSync(path.join(copy.folder, 'src/config/suggest.ts'), '\n');
  const sale = await call(`${await listening(2)}/sales/${id}`);
  expect(sale).toMatchObject({ status: 200, body: { stock: 3 } });
  process.kill(-npm.pid!, 'SIGINT'); // as Ctrl-C
  const left = () => spawnSync('ps', ['-o', 'args=', '-g', `${npm.pid}`], { encoding: 'utf8' }).stdout;
  await expect.poll(left).toBe('');
  await expectNoProcessOn(copy.folder);
}, 600_000);

it('a signal to npm reaches what runs for long: the shell does not stand in between', () => {
  const bench = [
    'bench',
    'bench:locks',
    'bench:limits',
    'bench:profile',
    'bench:smoke',
    'race',
    'lab',
    'pictures',
  ];
  const long = [...bench, 'dev', 'start', 'audit', 'reconcile'];
  for (const name of long) expect(scripts[name], name).toMatch(/(^|&& )exec node [^&]*$/);
});
