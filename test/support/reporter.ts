/**
 * vitest's default reporter, and a failed test is printed at once, since the end of a run may be half an hour away. Where no test runs,
 * the default one would surround the error of a failed global setup with its live summary, and explain a name that no file of the chosen
 * projects has by their globs, not by the file that has it.
 */
import { readdirSync } from 'node:fs';
import path from 'node:path';
import { DefaultReporter, type TestCase, type TestModule, type Vitest } from 'vitest/node';

type StartArguments = Parameters<DefaultReporter['onTestRunStart']>;
type EndArguments = Parameters<DefaultReporter['onTestRunEnd']>;

export class Reporter extends DefaultReporter {
  #vitest!: Vitest;
  #start: StartArguments | null = null;

  override onInit(vitest: Vitest): void {
    super.onInit(vitest);
    this.#vitest = vitest;
  }

  override onTestRunStart(...args: StartArguments): void {
    this.#start = args;
  }

  override onTestModuleQueued(module: TestModule): void {
    this.#begin();
    super.onTestModuleQueued(module);
  }

  override onTestCaseResult(test: TestCase): void {
    super.onTestCaseResult(test);
    const { state, errors = [] } = test.result();
    if (state !== 'failed') return;
    this.log(`Failed: ${test.module.relativeModuleId} > ${test.fullName}`);
    for (const { message, diff = '', stacks = [] } of errors) {
      this.log(`${message}\n${diff}`.trim());
      for (const { file, line } of stacks.slice(0, 3)) this.log(`    ${file}:${line}`);
    }
  }

  override onTestRunEnd(...args: EndArguments): void {
    const [modules, errors] = args;
    if (modules.length === 0 && errors.length === 0) {
      this.#explainNoFiles();
    } else {
      this.#begin();
      super.onTestRunEnd(...args);
    }
  }

  #begin(): void {
    if (this.#start !== null) super.onTestRunStart(...this.#start);
    this.#start = null;
  }

  #explainNoFiles(): void {
    const { config, projects } = this.#vitest;
    const { filenamePattern: names = [] } = this.#vitest as { filenamePattern?: string[] }; // not in the types
    const files = readdirSync(path.join(config.root, 'test'), { recursive: true, encoding: 'utf8' })
      .map((file) => path.join('test', file))
      .filter((file) => file.endsWith('.test.ts') && names.some((name) => file.includes(name)));
    this.error(`No test file of ${projects.map(({ name }) => name).join(', ')} matches ${names.join(' ')}.`);
    if (files.length > 0) this.error(`Run it in its own project: npx vitest run ${files.join(' ')}`);
  }
}
