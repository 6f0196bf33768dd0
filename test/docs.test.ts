/** What the documents say of the repository is true of it. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

const root = new URL('../', import.meta.url);
const text = (file: string) => readFileSync(new URL(file, root), 'utf8');
const documents = [
  'README.md',
  'CHANGELOG.md',
  ...readdirSync(new URL('docs', root)).map((name) => `docs/${name}`),
];

it('docs/architecture.md names only files that exist', () => {
  const files = ['src', 'bench', 'lua', 'test'].flatMap((folder) =>
    readdirSync(new URL(folder, root), { recursive: true, encoding: 'utf8' }).map((f) => `/${folder}/${f}`),
  );
  for (const [name] of text('docs/architecture.md').matchAll(/[\w./-]+\.(?:ts|lua)\b/g))
    expect(
      files.some((file) => file.endsWith(`/${name}`)),
      `architecture.md names ${name}`,
    ).toBe(true);
});

it.each(documents)('links of %s lead somewhere', (document) => {
  for (const [, target] of text(document).matchAll(/\]\(([^)#]+)[^)]*\)/g)) {
    if (/^https?:/.test(target!)) continue;
    expect(existsSync(new URL(target!, new URL(document, root))), target).toBe(true);
  }
});

it.each(documents)('commands of %s are scripts of the package', (document) => {
  const { scripts } = JSON.parse(text('package.json')) as { scripts: Record<string, string> };
  for (const [, script] of text(document).matchAll(/npm run ([\w:]+)/g))
    expect(scripts).toHaveProperty([script!]);
});

describe('docs/locks.md', () => {
  const page = text('docs/locks.md');
  const block = (name: string) => page.split(`<!-- ${name} -->`)[1]!.split(`<!-- /${name} -->`)[0]!;
  const named = (part: string) => [...part.matchAll(/^\| `([a-z-]+)` \|/gm)].map((match) => match[1]!);
  const locks = named(block('capabilities'));

  it('lists every lock that there is', () => {
    const there = readdirSync(new URL('src/locks', root), { recursive: true, encoding: 'utf8' }).filter(
      (file) => /\.ts$/.test(file) && /^export const description\b/m.test(text(`src/locks/${file}`)),
    );
    expect([...locks].sort()).toEqual(there.map((file) => file.replace(/^.*\/|\.ts$/g, '')).sort());
    expect(named(block('flaws'))).toEqual(locks);
    for (const lock of locks) expect(text('.env.example'), lock).toMatch(new RegExp(`[ :]${lock}[\\s,.]`));
  });

  it('tells of each how it works and what it costs', () => {
    const costs = page.split('## The locks')[1]!.split('###')[0]!;
    expect(named(costs)).toEqual(locks);
    const rungs = page.split('### The six rungs')[1]!.split('###')[0]!;
    for (const lock of locks)
      expect(page.includes(`\n### \`${lock}\``) || rungs.includes(`\n${lock} `), lock).toBe(true);
  });

  it('names tests that there are', () => {
    const tests = ['contract', 'locks'].flatMap((folder) =>
      readdirSync(new URL(`test/${folder}`, root)).map((file) => text(`test/${folder}/${file}`)),
    );
    const titles = [...page.matchAll(/“([^”]+)”/g)].map((match) => match[1]!.replaceAll('\n', ' '));
    expect(titles.length).toBeGreaterThan(8);
    for (const title of titles)
      expect(
        tests.some((source) => source.includes(`'${title}'`) || source.includes(`"${title}"`)),
        title,
      ).toBe(true);
  });

  it('sets variables that the service reads', () => {
    const known = text('.env.example');
    const variables = [...page.matchAll(/\b([A-Z]+(?:_[A-Z]+)*)=/g)].map((match) => match[1]!);
    expect(variables).toContain('ZOOKEEPER_URL');
    for (const variable of variables) expect(known).toContain(`\n# ${variable}=`);
  });
});

describe('docs/strategies.md', () => {
  const page = text('docs/strategies.md');
  const block = page.split('<!-- strategies -->')[1]!.split('<!-- /strategies -->')[0]!;
  const rows = [...block.matchAll(/^\| `([a-z-]+)` \|.*\| (\d+) \|/gm)].map(([, name, trips]) => [
    name!,
    trips!,
  ]);
  const strategies = rows.map(([name]) => name!);

  it('lists every strategy that there is', () => {
    const there = readdirSync(new URL('src/strategies', root), { recursive: true, encoding: 'utf8' }).filter(
      (file) => /\.ts$/.test(file) && /^export const description\b/m.test(text(`src/strategies/${file}`)),
    );
    expect([...strategies].sort()).toEqual(there.map((file) => file.replace(/^.*\/|\.ts$/g, '')).sort());
    for (const strategy of strategies)
      expect(text('.env.example'), strategy).toMatch(new RegExp(`[ :]${strategy}[\\s,.]`));
  });

  it.each(rows)('tells of %s how it works, in %s round trips, and what it is for', (name, trips) => {
    const section = page.split(`\n## \`${name}\`: `)[1]?.split('\n## ')[0] ?? '';
    expect(section.split('```'), 'one diagram').toHaveLength(3);
    expect(section).toMatch(new RegExp(`\\*\\*Round trips: ${trips}\\b`));
    for (const part of ['**Guarantees:**', '**Choose it**']) expect(section).toContain(part);
    const guide = page.split('## Which one do I need?')[1]!.split('<!--')[0]!;
    expect(guide).toContain(`\`${name}\``);
    const meeting = page.split('Where attempts on one sale meet:')[1]!.split('\n\n')[1]!;
    expect(meeting).toContain(`| \`${name}\` |`);
  });
});

/** Titles of tests and of their groups; what vitest fills in may be anything. */
function titlesIn(file: string): RegExp[] {
  const titles = [...text(file).matchAll(/[(?:]\s*(['"`])((?:(?!\1)[^\\\n]|\\.)+)\1(?=,|\s*:)/g)].map(
    (match) => match[2]!,
  );
  return titles.map((title) => {
    const fixed = title
      .split(/%[a-z]|\$\{[^}]*\}/)
      .map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
    return new RegExp(`^${fixed.join('.+')}$`);
  });
}

describe.each(['docs/strategies.md', 'docs/failure.md'])('%s', (document) => {
  const page = text(document);
  const files = new Map(
    [...page.matchAll(/^\[([a-z-]+)\]: (\S+)$/gm)].map(([, name, target]) => [
      name!,
      new URL(target!, new URL(document, root)),
    ]),
  );
  const quoted = [...page.matchAll(/“([^”]+)”(?: \[([a-z-]+)\])?/g)].map(([, title, file]) => ({
    title: title!.replace(/\s+/g, ' '),
    file,
  }));

  it('names tests that there are, each in its file', () => {
    expect(quoted.length).toBeGreaterThan(10);
    for (const { title, file } of quoted) {
      const url = files.get(file ?? '');
      expect(url, `“${title}” names no file`).toBeDefined();
      const titles = titlesIn(url!.href.slice(root.href.length)).filter(({ source }) => source.length > 12);
      expect(
        titles.some((pattern) => pattern.test(title)),
        `“${title}” is in ${file}`,
      ).toBe(true);
    }
  });

  it('names no file in vain', () => {
    for (const [name, url] of files) {
      expect(existsSync(url), url.href).toBe(true);
      expect(quoted.map(({ file }) => file)).toContain(name);
    }
  });
});

it('docs/failure.md names metrics that there are', () => {
  const there = ['instruments', 'attempt-tally', 'background']
    .map((name) => text(`src/metrics/${name}.ts`))
    .join();
  const named = [...text('docs/failure.md').matchAll(/\bstampede_[a-z_]+/g)].map(([name]) => name);
  expect(named.length).toBeGreaterThan(8);
  for (const name of named) expect(there).toContain(`'${name}'`);
});
