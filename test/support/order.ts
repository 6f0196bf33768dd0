/**
 * The order of the test files: larger ones first, and those of the locks, which mostly wait for leases, spread between the others. Four
 * of them at once, at the end, would leave the processors without work.
 */
import { statSync } from 'node:fs';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

const mostlyWaits = ({ moduleId }: TestSpecification): boolean =>
  /\/test\/(contract\/lock-(?!order)|locks\/)/.test(moduleId);
const sizeOf = ({ moduleId }: TestSpecification): number => statSync(moduleId).size;

export class Order extends BaseSequencer {
  /** Vitest then takes the projects apart whose groups run one after the other. */
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const bySize = files.toSorted((a, b) => sizeOf(b) - sizeOf(a));
    const waiting = bySize.filter(mostlyWaits);
    const others = bySize.filter((file) => !mostlyWaits(file));
    return others
      .flatMap((file, n) => [
        file,
        ...waiting.slice(
          Math.round((n * waiting.length) / others.length),
          Math.round(((n + 1) * waiting.length) / others.length),
        ),
      ])
      .concat(others.length === 0 ? waiting : []);
  }
}
