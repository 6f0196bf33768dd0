/** The label `operation` has a bounded set of values: every report names its operation by a literal in kebab case. */
import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

const root = new URL('../../src/', import.meta.url);
const files = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter(
  (file) => file.endsWith('.ts') && !file.startsWith('generated'),
);

it('operations of error reports are literals in kebab case', () => {
  const names = files.flatMap((file) => {
    const text = readFileSync(new URL(file, root), 'utf8');
    return [...text.matchAll(/onError(?:\?\.)?\(\s*('[^']*'|`[^`]*`)/g)].map(
      ([, name]) => `${file}: ${name}`,
    );
  });
  expect(names.length).toBeGreaterThan(15);
  expect(names.filter((name) => !/: '[a-z]+(-[a-z]+)*'$/.test(name))).toEqual([]);
});
