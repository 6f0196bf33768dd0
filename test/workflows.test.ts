/** The workflows of .github: what they run is pinned, and their permissions are minimal. */
import { execFileSync, spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { describeInFull } from './support/tier.ts';

const root = fileURLToPath(new URL('../', import.meta.url));
const folder = path.join(root, '.github/workflows');
const files = readdirSync(folder).sort();

interface Job {
  readonly 'timeout-minutes'?: number;
  readonly permissions?: Readonly<Record<string, string>>;
  readonly steps: readonly { readonly uses?: string; readonly run?: string; readonly with?: object }[];
}
interface Workflow {
  readonly permissions?: unknown;
  readonly concurrency?: { readonly group: string };
  readonly jobs: Readonly<Record<string, Job>>;
}

/** Jobs that may write, with the scopes. */
const WRITERS: Readonly<Record<string, readonly string[]>> = {
  'image.yml publish': ['attestations', 'id-token', 'packages'],
};

describe.each(files)('%s', (file) => {
  const text = readFileSync(path.join(folder, file), 'utf8');
  const { permissions, jobs } = parse(text) as Workflow;
  const all = Object.entries(jobs);

  it('pins every action by its commit, and names the version', () => {
    const uses = text.split('\n').filter((line) => /\buses:/.test(line));
    expect(uses.length).toBeGreaterThan(0);
    for (const line of uses)
      expect(line).toMatch(/^ +(- )?uses: [\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
  });

  it('may read the repository, and nothing else unless a job needs it', () => {
    expect(permissions).toEqual({ contents: 'read' });
    for (const [name, job] of all) {
      const rights = Object.entries(job.permissions ?? {}).filter(([, right]) => right === 'write');
      expect(rights.map(([scope]) => scope).sort(), name).toEqual(WRITERS[`${file} ${name}`] ?? []);
    }
    for (const { uses, with: inputs } of all.flatMap(([, { steps }]) => steps))
      if (uses?.startsWith('actions/checkout@'))
        expect(inputs).toMatchObject({ 'persist-credentials': false });
  });
});

it('runs the tests with every version of Node that package.json allows, and an image with one of them', () => {
  const { jobs } = parse(readFileSync(path.join(folder, 'test.yml'), 'utf8'));
  const versions = jobs.quick.strategy.matrix.node as number[];
  const { engines } = JSON.parse(readFileSync(`${root}package.json`, 'utf8'));
  expect(engines.node).toMatch(new RegExp(`^>=${versions[0]}\\.`));
  const [, major] = /^FROM node:(\d+)\.\d+\.\d+-\S+@sha256:[0-9a-f]{64} AS base$/m.exec(
    readFileSync(`${root}Dockerfile`, 'utf8'),
  )!;
  expect(versions).toContain(Number(major));
});

const ACTIONLINT = 'github.com/rhysd/actionlint/cmd/actionlint@v1.7.12';

/** actionlint, installed or built with Go; null if there is neither. */
function findActionlint(): string | null {
  const works = (program: string) => spawnSync(program, ['-version']).status === 0;
  if (works('actionlint')) return 'actionlint';
  try {
    const own = path.join(
      execFileSync('go', ['env', 'GOPATH'], { encoding: 'utf8' }).trim(),
      'bin/actionlint',
    );
    if (!works(own)) execFileSync('go', ['install', ACTIONLINT], { stdio: 'ignore' });
    return works(own) ? own : null;
  } catch {
    return null;
  }
}

describeInFull('actionlint', () => {
  const program = findActionlint();
  it.skipIf(program === null)('finds no mistake (skipped where neither it nor Go is installed)', () => {
    const { status, stdout } = spawnSync(program!, files, { cwd: folder, encoding: 'utf8' });
    expect(stdout).toBe('');
    expect(status).toBe(0);
  });
});
