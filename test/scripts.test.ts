/** Every script of package.json is run: by .ci/run, by another script, or here. */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { expectNobodyOn } from './local/support.ts';
import { call, createSale, eventually } from './support/client.ts';
import { opened } from './support/opened.ts';
import { copySources } from './support/service.ts';

const root = fileURLToPath(new URL('../', import.meta.url));
const text = (file: string) => readFileSync(path.join(root, file), 'utf8');
const { scripts } = JSON.parse(text('package.json')) as { scripts: Readonly<Record<string, string>> };

const copy = opened(copySources);

const BUILD = 'npm run --silent build && ';

/** Runs a script as npm does, without the build: the global setup has made it. */
async function run(name: string, args: string, cwd = root) {
  const command = `${scripts[name]!.replace(BUILD, '')} ${args}`;
  const PATH = `${path.join(root, 'node_modules/.bin')}:${process.env.PATH}`;
  const child = spawn('/bin/sh', ['-c', command], { cwd, env: { ...process.env, PATH, NO_COLOR: '1' } });
  const said = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const)
    child[name].on('data', (chunk) => {
      said[name] += chunk;
    });
  const [status] = await once(child, 'close');
  return { status, ...said };
}

/** Passes an option that no program has: the program prints one line and starts nothing. */
const refusesOptions = async (name: string) => {
  expect(await run(name, '--helpp')).toEqual({
    status: 2,
    stdout: '',
    stderr: 'there is no option --helpp; did you mean "--help"?\n',
  });
};
/** The Vitest projects of a script that finds no file of the name. */
const projectsOf = async (name: string) => {
  const { status, stdout, stderr } = await run(name, 'no-file-of-this-name --passWithNoTests');
  expect(status).toBe(0);
  return /No test file of (.*) matches/.exec(stdout + stderr)?.[1]?.split(', ');
};

/** `npm run dev` in the copy, in a separate process group as in a terminal. */
class Dev implements AsyncDisposable {
  log = '';
  readonly npm = spawn('npm', ['run', '--silent', 'dev'], {
    cwd: copy.folder,
    env: { PATH: process.env.PATH, HOME: process.env.HOME, PORT: '0', WORKERS: '2' },
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });

  constructor() {
    for (const output of [this.npm.stdout, this.npm.stderr])
      output.on('data', (chunk) => {
        this.log += chunk;
      });
  }

  /** Waits until it listens for the n-th time. @returns the URL */
  async listening(n: number): Promise<string> {
    const port = await eventually(
      async () => {
        if (this.npm.exitCode !== null || this.log.includes('Failed running')) throw new Error(this.log);
        return [...this.log.matchAll(/"port":(\d+).*"msg":"listening"/g)][n - 1]?.[1];
      },
      (found) => found !== undefined,
    );
    return `http://127.0.0.1:${port}`;
  }

  /** Waits until its processes and its stores have ended. */
  async expectNobody(): Promise<void> {
    const group = ['-o', 'args=', '-g', String(this.npm.pid)];
    const left = () => spawnSync('ps', group, { encoding: 'utf8' }).stdout;
    await expect.poll(left).toBe('');
    await expectNobodyOn(copy.folder, 30_000);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      process.kill(-this.npm.pid!, 'SIGKILL');
    } catch {} // all have ended
  }
}

/** Runs `dev` with its own stores and two workers, changes a file, and ends it in both ways. */
async function startAndStop(): Promise<void> {
  await using first = new Dev();
  const { id } = await createSale(await first.listening(1), 3);
  appendFileSync(path.join(copy.folder, 'src/config/suggest.ts'), '\n');
  const sale = await call(`${await first.listening(2)}/sales/${id}`);
  expect(sale).toMatchObject({ status: 200, body: { stock: 3 } });
  process.kill(-first.npm.pid!, 'SIGINT'); // as Ctrl-C
  await first.expectNobody();
  await using second = new Dev();
  await second.listening(1);
  second.npm.kill('SIGTERM');
  await second.expectNobody();
}

/** The scripts that .ci/run does not run. */
const here: Readonly<Record<string, (name: string) => Promise<void>>> = {
  bench: refusesOptions,
  'bench:locks': refusesOptions,
  'bench:limits': refusesOptions,
  'bench:profile': refusesOptions,
  race: refusesOptions,
  lab: refusesOptions,
  pictures: refusesOptions,
  audit: refusesOptions,
  reconcile: refusesOptions,
  dev: startAndStop,
  'test:all': async (name) => expect(await projectsOf(name)).toEqual(['quick', 'full', 'timed', 'valkey']),
  async secrets(name) {
    expect(await run(name, '', copy.folder)).toMatchObject({ status: 0 });
    expect(readFileSync(path.join(copy.folder, '.env'), 'utf8')).toMatch(/^ADMIN_TOKEN=\w{48}$/m);
    rmSync(path.join(copy.folder, '.env'));
  },
  async format(name) {
    const file = path.join(copy.folder, 'src/domain/unformatted.ts');
    writeFileSync(file, 'export const  a = "b"\n');
    expect(await run(name, 'src/domain', copy.folder)).toMatchObject({ status: 0 });
    expect(readFileSync(file, 'utf8')).toBe("export const a = 'b';\n");
    rmSync(file);
  },
  async 'package:locks'(name) {
    expect(await run(name, '', copy.folder)).toMatchObject({ status: 0 });
    expect(existsSync(path.join(copy.folder, 'dist/stampede-locks/dist/locks/index.js'))).toBe(true);
  },
  async sbom(name) {
    const { stdout } = await run(name, '');
    expect(JSON.parse(stdout)).toMatchObject({ bomFormat: 'CycloneDX' });
  },
};

/** The scripts that commands run, including npm's hooks. */
function scriptsIn(commands: string): string[] {
  const called = [...commands.matchAll(/\bnpm (?:run (?:--silent )?)?([\w:]+)/g)].map(([, name]) => name!);
  const found = called
    .flatMap((name) => [`pre${name}`, name === 'install' ? 'postinstall' : name])
    .filter((name) => name in scripts);
  return found.flatMap((name) => [name, ...scriptsIn(scripts[name]!)]);
}
const inCi = new Set(scriptsIn(text('.ci/run').replace(/(^|\s)#.*$/gm, '')));

it('.ci/run is run by a workflow, and runs the checks', () => {
  expect(text('.github/workflows/test.yml')).toContain('- run: bash .ci/run\n');
  expect([...inCi]).toEqual(expect.arrayContaining(['postinstall', 'prestart', 'start', 'test', 'readme']));
});

it.each(Object.keys(scripts).filter((name) => !inCi.has(name)))('npm run %s', async (name) => {
  expect(Object.keys(here), `say here how ${name} is run`).toContain(name);
  await here[name]!(name);
});

it('a signal to npm reaches what runs for long: the shell does not stand in between', () => {
  const programs = Object.entries(scripts).filter(([, command]) =>
    /^(?!.*&& tsc).*node .*main/.test(command),
  );
  expect(programs.length).toBeGreaterThan(5);
  for (const [name, command] of programs) expect(command, name).toMatch(/(^|&& )exec node [^&]*$/);
});

it.each([
  ['bench', 'fautls', 'there is no suite "fautls"; did you mean "faults"?'],
  ['audit', 'verfy', '"verfy" is not a command; did you mean "verify"?'],
  ['reconcile', '--chek', 'there is no option --chek; did you mean "--check"?'],
  ['audit', 'verify --head', "Option '--head <value>' argument missing"],
  ['readme', '--chek', 'there is no option --chek; did you mean "--check"?'],
])('npm run %s -- %s is refused with one line', async (name, args, line) => {
  expect(await run(name, args)).toEqual({ status: 2, stdout: '', stderr: `${line}\n` });
});
