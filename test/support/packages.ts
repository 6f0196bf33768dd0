/** A package of this repository, built and packed as its page says, and installed in an empty project. */
import { execFile } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core';
import { publint } from 'publint';
import { expect, it } from 'vitest';
import { temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import { root } from './samples.ts';

export interface InstalledPackage extends AsyncDisposable {
  /** The project. */
  readonly folder: string;
  readonly tarball: string;
  /** Runs a program in the project. @returns what it prints, trimmed @throws with that, if it fails */
  run(program: string, args: readonly string[], env?: NodeJS.ProcessEnv): Promise<string>;
}

async function run(cwd: string, program: string, args: readonly string[], more: NodeJS.ProcessEnv = {}) {
  const env = { ...process.env, NODE_ENV: '', npm_config_prefer_offline: 'true', ...more };
  const done = promisify(execFile)(program, args, { cwd, env, timeout: 150_000 });
  const { stdout } = await done.catch(({ stdout, stderr }) => {
    throw new Error(`${program} ${args.join(' ')}: ${stdout}${stderr}`);
  });
  return stdout.trim();
}

/** @param page its block of `bash` has two lines: in the clone, and in a program */
export async function installPackage(page: string): Promise<InstalledPackage> {
  const [PACK, INSTALL] = /^```bash\n([\s\S]*?)^```$/m.exec(page)![1]!.trim().split('\n');
  const folder = await temporaryFolder('stampede-test-package-');
  const untracked = () =>
    run(root, 'git', ['ls-files', '--others', '--exclude-standard', '*.tgz']).catch(() => '');
  const before = await untracked();
  await run(root, 'sh', ['-ec', PACK!]);
  expect(await untracked(), 'a file that git would add').toBe(before);
  writeFileSync(path.join(folder, 'package.json'), '{ "type": "module" }');
  const tarball = path.join(root, /dist\/\S+\.tgz/.exec(INSTALL!)![0]);
  await run(folder, 'npm', ['install', '--no-audit', '--no-fund', tarball]);
  return {
    folder,
    tarball,
    run: (program, args, env) => run(folder, program, args, env),
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true, force: true }),
  };
}

/** Its tests that do not depend on what it does. @param exported one of its names, by its entry */
export function testsOfPackage(
  name: string,
  exported: Readonly<Record<string, string>>,
  packed: InstalledPackage,
): void {
  it('depends on nothing, and loads by import and by require', async () => {
    const installed = readdirSync(path.join(packed.folder, 'node_modules'));
    expect(installed.filter((one) => !one.startsWith('.'))).toEqual(['@stampede']);
    const has = (load: string, one: string) =>
      packed.run('node', ['-e', `(async () => console.log('${one}' in (${load})))()`]);
    for (const [entry, one] of Object.entries(exported))
      for (const load of [`await import('${entry}')`, `require('${entry}')`])
        expect(await has(load, one), load).toBe('true');
  });

  it('has the files and types that its manifest promises', async () => {
    expect(await publint({ pkgDir: path.join(root, `dist/stampede-${name}`), strict: true })).toMatchObject({
      messages: [],
    });
    const analysis = await checkPackage(createPackageFromTarballData(readFileSync(packed.tarball)));
    const problems = 'problems' in analysis ? analysis.problems : ['no types'];
    // It is a module: CommonJS loads it by Node's require of modules, and resolution from before `exports` does not find it.
    const others = problems.filter(
      (one) => !['node10', 'node16-cjs'].includes((one as { resolutionKind?: string }).resolutionKind ?? ''),
    );
    expect(others).toEqual([]);
  });
}
