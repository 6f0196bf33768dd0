/**
 * vitest's default reporter, and a failed test is printed at once, since the end of a run may be half an hour away. Where no test runs,
 * the default one would surround the error of a failed global setup with its live summary.
 */
import { DefaultReporter, type TestCase, type TestModule } from 'vitest/node';

type StartArguments = Parameters<DefaultReporter['onTestRunStart']>;
type EndArguments = Parameters<DefaultReporter['onTestRunEnd']>;

export class Reporter extends DefaultReporter {
  #start: StartArguments | null = null;

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
    this.#begin();
    super.onTestRunEnd(...args);
  }

  #begin(): void {
    if (this.#start !== null) super.onTestRunStart(...this.#start);
    this.#start = null;
  }
}
