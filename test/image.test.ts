/** The image of the Dockerfile, built by its own commands in an empty folder and started as a container would be. */
import { type ChildProcess, execFileSync, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { temporaryFolder } from '../lab/kit/temporary-folder.ts';
import { attempt, createSale } from './support/client.ts';
import {
  buildImage,
  copyContext,
  filesBelow,
  firstProcessOf,
  type Image,
  noContainer,
  packagesIn,
  parseDockerfile,
  startContainer,
} from './support/image.ts';
import { opened } from './support/opened.ts';
import { openTestStores } from './support/stores.ts';

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
  image = buildImage(parseDockerfile(readFileSync(`${root}Dockerfile`, 'utf8')), context, folder);
  app = path.join(image.root, image.workdir);
}, 600_000);
afterAll(() => rmSync(folder, { recursive: true }));

const bom = () =>
  JSON.parse(execFileSync('npm', ['run', '--silent', 'sbom'], { cwd: root, encoding: 'utf8' })) as {
    components: { name: string; version: string }[];
  };

describe('the files of the image', () => {
  it('are the compiled service, what it reads, and its dependencies', () => {
    const own = filesBelow(app).filter((file) => !file.startsWith('node_modules/'));
    const parts = [...new Set(own.map((file) => file.replace(/^(dist|lua|prisma\/migrations)\/.*/, '$1')))];
    expect(parts.sort()).toEqual([
      'LICENSE',
      'dist',
      'lua',
      'package.json',
      'prisma/migrations',
      'prisma/schema.prisma',
    ]);
    const kinds = /^(dist\/.*\.js(\.map)?|lua\/.*\.lua|prisma\/.*\.(sql|toml|prisma)|LICENSE|package\.json)$/;
    const pages = /^dist\/web\/[\w-]+\.(js|css|svg)(\.br|\.gz)?$/;
    expect(own.filter((file) => !kinds.test(file) && !pages.test(file))).toEqual([]);
    expect(own).toEqual(
      expect.arrayContaining([
        'dist/commands/start.js',
        'dist/commands/reconcile.js',
        'dist/commands/audit.js',
      ]),
    );
  });

  it('have the packages of the software bill of materials, and no other', () => {
    const { packages } = JSON.parse(readFileSync(`${root}package-lock.json`, 'utf8')) as {
      packages: Record<string, { version: string; dev?: true; devOptional?: true; optional?: true }>;
    };
    const locked = Object.entries(packages).flatMap(([place, { version, ...only }]) =>
      place === '' || only.dev || only.devOptional || only.optional
        ? []
        : [`${place.replace(/^.*node_modules\//, '')}@${version}`],
    );
    const installed = packagesIn(path.join(app, 'node_modules'));
    expect(installed.sort()).toEqual(locked.sort());
    expect(bom().components.map(({ name, version }) => `${name}@${version}`)).toEqual(
      expect.arrayContaining(installed),
    );
    expect(bom().components).toHaveLength(new Set(installed).size);
  });

  it(`have at most ${MAX_DEPENDENCIES_MB} MB of dependencies`, () => {
    const du = execFileSync('du', ['-sm', path.join(app, 'node_modules')], { encoding: 'utf8' });
    expect(Number(du.split('\t')[0])).toBeLessThanOrEqual(MAX_DEPENDENCIES_MB);
  });

  it('cannot be changed by the user of the image', () => {
    expect(image.settings.USER).toMatch(/^[1-9]\d*:[1-9]\d*$/);
    const [user] = image.settings.USER!.split(':').map(Number);
    const changeable = filesBelow(app).filter((file) => {
      const { uid, mode } = statSync(path.join(app, file));
      return uid === user || (mode & 0o022) !== 0;
    });
    expect(changeable).toEqual([]);
  });
});

const reason = noContainer();

describe.skipIf(reason !== null)(`a container of the image${reason === null ? '' : `: ${reason}`}`, () => {
  const command = (name: 'CMD' | 'HEALTHCHECK') =>
    JSON.parse(image.settings[name]!.replace(/^.*?CMD /, '')) as string[];
  const stores = opened(openTestStores);
  let env: Record<string, string>;
  const containers: ChildProcess[] = [];

  beforeAll(async () => {
    const probe = createServer();
    await new Promise<void>((resolve) => probe.listen(0, '127.0.0.1', resolve));
    const { port } = probe.address() as { port: number };
    await new Promise((resolve) => probe.close(resolve));
    // The network is this machine's, so the service listens on its loopback.
    env = { ...stores.env, PORT: `${port}`, HOST: '127.0.0.1' };
  });
  afterAll(async () => {
    for (const one of containers)
      if (one.exitCode === null && one.signalCode === null) {
        one.kill('SIGKILL');
        await once(one, 'exit');
      }
  });

  function start(line: readonly string[], variables: Record<string, string>) {
    const mountPoint = path.join(folder, `mount-${containers.length}`);
    mkdirSync(mountPoint);
    const container = startContainer(image, mountPoint, line, variables);
    containers.push(container);
    const output: string[] = [];
    for (const stream of [container.stdout!, container.stderr!])
      stream.on('data', (chunk) => output.push(String(chunk)));
    return { container, output, ended: once(container, 'close') as Promise<[number | null]> };
  }
  async function run(line: readonly string[], variables = env) {
    const { output, ended } = start(line, variables);
    const [code] = await ended;
    return { code, output: output.join('') };
  }

  it('does not start without AUTH', async () => {
    const { HOST: _, ...open } = env;
    const { code, output } = await run(command('CMD'), open);
    expect(code).toBe(1);
    expect(output).toContain('AUTH');
  });

  it('is not healthy before the service listens', async () => {
    expect((await run(command('HEALTHCHECK'))).code).toBe(1);
  });

  it.each(['1', '2'])(
    'sells with a read-only file system and no capabilities, and stops cleanly: WORKERS=%s',
    async (WORKERS) => {
      const { container, output, ended } = start(command('CMD'), { ...env, WORKERS });
      const url = `http://127.0.0.1:${env.PORT}`;
      await expect.poll(() => run(command('HEALTHCHECK'))).toMatchObject({ code: 0 });

      const { id } = await createSale(url, 1);
      expect((await attempt(url, id, 'ann')).status).toBe(201);
      expect((await attempt(url, id, 'ann')).body.replayed).toBe(true);
      expect((await attempt(url, id, 'ben')).problem).toBe('sold-out');

      const main = firstProcessOf(container);
      const status = readFileSync(`/proc/${main}/status`, 'utf8');
      const [uid, gid] = image.settings.USER!.split(':');
      expect(status).toContain(`\nUid:\t${[uid, uid, uid, uid].join('\t')}\n`);
      expect(status).toContain(`\nGid:\t${[gid, gid, gid, gid].join('\t')}\n`);
      expect(status).toMatch(/\nGroups:\s*\n/);
      expect(status).toContain('\nNoNewPrivs:\t1\n');
      for (const set of ['Inh', 'Prm', 'Eff', 'Bnd', 'Amb'])
        expect(status, set).toContain(`\nCap${set}:\t0000000000000000\n`);
      const writable = readFileSync(`/proc/${main}/mountinfo`, 'utf8')
        .trim()
        .split('\n')
        .map((line) => line.split(' '))
        .filter(([, , , , place, options]) => !options!.startsWith('ro') && !/^\/(proc|dev)\b/.test(place!));
      expect(writable).toEqual([]);

      process.kill(main, image.settings.STOPSIGNAL);
      expect((await ended)[0], output.join('')).toBe(0);
    },
  );

  it('reconciles, and verifies the audit log', async () => {
    const node = ['node', '--enable-source-maps'];
    expect(await run([...node, 'dist/commands/reconcile.js', '--check'])).toEqual({
      code: 0,
      output: 'Redis agrees with Postgres.\n',
    });
    expect(await run([...node, 'dist/commands/audit.js', 'verify'])).toMatchObject({ code: 0 });
  });
});

it('leaves no mount behind', () => {
  const { stdout } = spawnSync('mount', { encoding: 'utf8' });
  expect(stdout).not.toContain(folder);
});
