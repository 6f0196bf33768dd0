/** The image of the Dockerfile, built by its own commands in an empty folder and started as a container would be. */
import { type ChildProcess, execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { temporaryFolder } from '../lab/kit/temporary-folder.ts';
import { freePort } from '../src/local/server-process.ts';
import { attempt, createSale } from './support/client.ts';
import {
  buildImage,
  canContain,
  copyContext,
  filesBelow,
  type Image,
  startContainer,
} from './support/image.ts';
import { opened } from './support/opened.ts';
import { envOf, openTestStores } from './support/stores.ts';

const root = fileURLToPath(new URL('../', import.meta.url));
/** Megabytes of the production dependencies, as `du -sm` counts them. */
const MAX_DEPENDENCIES_MB = 250;

let folder: string;
let image: Image;
let app: string;

beforeAll(async () => {
  folder = await temporaryFolder('stampede-test-image-');
  const context = path.join(folder, 'context');
  copyContext(root, context);
  image = buildImage(readFileSync(`${root}Dockerfile`, 'utf8'), context, folder);
  app = path.join(image.root, image.workdir);
}, 1_800_000);
afterAll(() => rmSync(folder, { recursive: true }));

const outputOf = (command: string, ...args: string[]) =>
  execFileSync(command, args, { cwd: root, encoding: 'utf8' });

describe('the files of the image', () => {
  it('are the compiled service, what it reads, and its dependencies', () => {
    const kinds = [
      /^(LICENSE|package\.json|node_modules\/.*|lua\/.*\.lua)$/,
      /^prisma\/(migrations\/.*\.(sql|toml)|schema\.prisma)$/,
      /^dist\/(.*\.js(\.map)?|web\/[\w-]+\.(js|css|svg)(\.br|\.gz)?)$/,
    ];
    expect(filesBelow(app).filter((file) => !kinds.some((kind) => kind.test(file)))).toEqual([]);
    expect(filesBelow(app)).toEqual(expect.arrayContaining(['LICENSE', 'prisma/schema.prisma']));
  });

  it(`have the packages of the software bill of materials, and no other, in ${MAX_DEPENDENCIES_MB} MB`, () => {
    const nameOf = ({ name, version }: { name: string; version: string }) => `${name}@${version}`;
    const { components } = JSON.parse(outputOf('npm', 'run', '--silent', 'sbom'));
    const manifests = filesBelow(app).filter((file) =>
      /(^|\/)node_modules\/(@[^/]+\/)?[^/]+\/package\.json$/.test(file),
    );
    const installed = manifests.map((file) => nameOf(JSON.parse(readFileSync(path.join(app, file), 'utf8'))));
    expect(new Set(installed)).toEqual(new Set(components.map(nameOf)));
    const [megabytes] = outputOf('du', '-sm', path.join(app, 'node_modules')).split('\t');
    expect(Number(megabytes)).toBeLessThanOrEqual(MAX_DEPENDENCIES_MB);
  });

  it('cannot be changed by the user of the image', () => {
    expect(image.settings.USER).toMatch(/^[1-9]\d*:[1-9]\d*$/);
    const changeable = filesBelow(app).filter((file) => {
      const { uid, mode } = statSync(path.join(app, file));
      return uid === Number.parseInt(image.settings.USER!, 10) || (mode & 0o022) !== 0;
    });
    expect(changeable).toEqual([]);
  });
});

describe.skipIf(!canContain())('a container of the image', () => {
  const command = (name: 'CMD' | 'HEALTHCHECK'): string[] =>
    JSON.parse(image.settings[name]!.replace(/^.*?CMD /, ''));
  const stores = opened(openTestStores);
  let env: Record<string, string>;

  beforeAll(async () => {
    // The network is this machine's, so the service listens on its loopback.
    env = { ...envOf(stores), PORT: `${await freePort()}`, HOST: '127.0.0.1' };
  });

  function start(line: readonly string[], variables = env) {
    const container = startContainer(image, mkdtempSync(path.join(folder, 'mount-')), line, variables);
    const ended = once(container, 'close');
    onTestFinished(async () => {
      container.kill('SIGKILL');
      await ended;
    });
    const output = Promise.all([text(container.stdout!), text(container.stderr!)]);
    const result = async () => ({ code: (await ended)[0], output: (await output).join('') });
    return { container, result: result() };
  }
  const run = (line: readonly string[], variables = env) => start(line, variables).result;
  /** As seen from outside. */
  const firstProcessOf = ({ pid }: ChildProcess) =>
    Number.parseInt(readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8'), 10);

  it('does not start without AUTH', async () => {
    const { HOST: _, ...open } = env;
    expect(await run(command('CMD'), open)).toEqual({ code: 1, output: expect.stringContaining('AUTH') });
  });

  it('sells with a read-only file system and no capabilities, and stops cleanly, with WORKERS=2', async () => {
    expect(await run(command('HEALTHCHECK'))).toMatchObject({ code: 1 });
    const { container, result } = start(command('CMD'), { ...env, WORKERS: '2' });
    const url = `http://127.0.0.1:${env.PORT}`;
    await expect.poll(() => run(command('HEALTHCHECK'))).toMatchObject({ code: 0 });

    const { id } = await createSale(url, 1);
    expect((await attempt(url, id, 'ann')).status).toBe(201);
    expect((await attempt(url, id, 'ann')).body.replayed).toBe(true);
    expect((await attempt(url, id, 'ben')).problem).toBe('sold-out');

    const main = firstProcessOf(container);
    const status = readFileSync(`/proc/${main}/status`, 'utf8');
    const [uid, gid] = image.settings.USER!.split(':').map((id) => `(\\t${id}){4}`);
    const no = ['Inh', 'Prm', 'Eff', 'Bnd', 'Amb'].map((set) => `Cap${set}:\\t0{16}`);
    for (const line of [`Uid:${uid}`, `Gid:${gid}`, 'Groups:\\s*', 'NoNewPrivs:\\t1', ...no])
      expect(status).toMatch(new RegExp(`^${line}$`, 'm'));
    const mounts = readFileSync(`/proc/${main}/mountinfo`, 'utf8').trim().split('\n');
    const writable = mounts.filter((line) => !/^(\S+ ){4}(\/(proc|dev)\b|\S+ ro\b)/.test(line));
    expect(writable).toEqual([]);

    process.kill(main, image.settings.STOPSIGNAL);
    expect(await result).toMatchObject({ code: 0 });
  });

  it('reconciles, and verifies the audit log', async () => {
    const node = ['node', '--enable-source-maps'];
    const output = 'Redis agrees with Postgres.\n';
    expect(await run([...node, 'dist/commands/reconcile.js', '--check'])).toEqual({ code: 0, output });
    expect(await run([...node, 'dist/commands/audit.js', 'verify'])).toMatchObject({ code: 0 });
  });
});
