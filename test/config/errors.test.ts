/** Errors carry a stable code that programs can rely on. */
import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

const root = new URL('../../src/', import.meta.url);
const files = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter(
  (file) => file.endsWith('.ts') && !file.startsWith('generated'),
);

it('every class of errors has a code', () => {
  const classes = files.flatMap((file) => {
    const text = readFileSync(new URL(file, root), 'utf8');
    return [...text.matchAll(/class (\w+) extends \w*Error \{\n([\s\S]*?)\n\}/g)];
  });
  expect(classes.length).toBeGreaterThan(8);
  const without = classes.filter(([, , body]) => !/readonly code\b/.test(body!)).map(([, name]) => name);
  expect(without).toEqual([]);
});
