/** The lock file fits every platform: `npm ci` refuses one without another platform's packages. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

interface Entry {
  readonly version?: string;
  readonly resolved?: string;
  readonly optionalDependencies?: Readonly<Record<string, string>>;
}
const { packages } = JSON.parse(readFileSync(new URL('../package-lock.json', import.meta.url), 'utf8')) as {
  packages: Readonly<Record<string, Entry>>;
};
const entries = Object.entries(packages);

it('the lock file has an entry for each optional package, of this and of other platforms', () => {
  const names = new Set(entries.map(([place]) => place.replace(/^.*node_modules\//, '')));
  const optional = entries.flatMap(([, entry]) => Object.keys(entry.optionalDependencies ?? {}));
  expect(optional.length).toBeGreaterThan(50);
  expect(optional.filter((name) => !names.has(name))).toEqual([]);
});

it('the lock file names versions, and no registry', () => {
  for (const [place, { version, resolved }] of entries) {
    expect(version, place).toBeDefined();
    expect(resolved, place).toBeUndefined();
  }
});
