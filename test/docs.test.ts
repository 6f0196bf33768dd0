/** What the documents say of the repository is true of it. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

const root = new URL('../', import.meta.url);
const text = (file: string) => readFileSync(new URL(file, root), 'utf8');
const documents = [
  'README.md',
  'CHANGELOG.md',
  ...readdirSync(new URL('docs', root)).map((name) => `docs/${name}`),
];

it('docs/architecture.md names every file, and no other', () => {
  const files = ['src', 'bench', 'lua'].flatMap((folder) =>
    readdirSync(new URL(folder, root), { recursive: true, encoding: 'utf8' })
      .filter((file) => /\.(ts|lua)$/.test(file) && !/^(generated|results)\//.test(file))
      .map((file) => ({ folder, file })),
  );
  const named = new Set(
    [...text('docs/architecture.md').matchAll(/[\w./-]+\.(?:ts|lua)\b/g)].map((match) => match[0]),
  );
  const nameOf = ({ folder, file }: { folder: string; file: string }) =>
    folder === 'src' ? file.replace(/^(?!http\/routes)[\w]+\//, '').replace(/^http\//, '') : file;
  for (const file of files)
    expect([...named], `${file.folder}/${file.file}`).toContain(
      file.file === 'main.ts' && file.folder === 'src' ? 'src/main.ts' : nameOf(file),
    );
  const known = files.flatMap(({ folder, file }) => [file, `${folder}/${file}`, nameOf({ folder, file })]);
  for (const name of named)
    expect([...known, 'test/tidy.test.ts'], `architecture.md names ${name}`).toContain(name);
});

it.each(documents)('links of %s lead somewhere', (document) => {
  for (const [, target] of text(document).matchAll(/\]\(([^)#]+)[^)]*\)/g)) {
    if (/^https?:/.test(target!)) continue;
    expect(existsSync(new URL(target!, new URL(document, root))), target).toBe(true);
  }
});

it('commands of the README are scripts of the package', () => {
  const { scripts } = JSON.parse(text('package.json')) as { scripts: Record<string, string> };
  for (const [, script] of text('README.md').matchAll(/npm run ([\w:]+)/g))
    expect(scripts).toHaveProperty([script!]);
});
