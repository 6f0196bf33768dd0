/** Import rules, and budgets for files and functions. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { FULL_ONLY, IN_BOTH, ON_VALKEY, QUICK_ONLY, TIMED } from './tiers.ts';

const root = fileURLToPath(new URL('../', import.meta.url));

const files = ['src', 'lab', 'bench', 'test', 'lua', 'scripts', 'examples']
  .flatMap((folder) =>
    readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' }).map((f) => `${folder}/${f}`),
  )
  .filter((file) => /\.(tsx?|lua)$/.test(file) && !/^(src\/generated|bench\/results)\//.test(file))
  .sort();
const text = (file: string) => readFileSync(path.join(root, file), 'utf8');
const source = files.filter((file) => file.startsWith('src/'));

/** What each file imports from this repository, as paths from its root; with the scripts of lua/ that it loads or includes. */
const importsOf = new Map(
  files.map((file) => {
    const found = (pattern: RegExp) => [...text(file).matchAll(pattern)].map(([, name]) => name!);
    const modules = found(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g).map((other) =>
      path.join(path.dirname(file), other),
    );
    const scripts = file.startsWith('src/') ? found(/'((?:sale|lock|lib)\/[a-z-]+)'/g) : [];
    scripts.push(...found(/^--#include (\S+)$/gm).map((name) => `lib/${name}`));
    return [file, [...modules, ...scripts.map((name) => `lua/${name}.lua`)]];
  }),
);
const imports = [...importsOf].flatMap(([file, others]) => others.map((other) => `${file} → ${other}`));

/** Each part of `src` may import every part before it; a comma parts equals. `generated` is Prisma's client. */
const LAYERS =
  'generated domain config client,concurrency,locks local store metrics points,strategies,tasks orders,access http web service commands'
    .split(' ')
    .map((layer) => layer.split(','));

/** What the implementations of a family share; every other file of the family's folder is an implementation. */
const SHARED =
  '(adapters|kit)/|(all-of|callers|clients|fencing|hooks|index|lock|options|reentrant|registry|strategy)\\.ts$';
const isImplementation = (file: string) => new RegExp(`^src/(locks|strategies)/(?!${SHARED})`).test(file);

describe('imports', () => {
  it('name only earlier layers', () => {
    const partOf = (file: string) => /(?:^| )src\/([^/]+)/.exec(file)?.[1] ?? '';
    const layerOf = (file: string) => LAYERS.findIndex((layer) => layer.includes(partOf(file)));
    expect(source.filter((file) => layerOf(file) === -1)).toEqual([]);
    const wrong = imports.filter((one) => {
      const [file, other] = one.split(' → ') as [string, string];
      return file.startsWith('src/') && partOf(file) !== partOf(other) && layerOf(other) >= layerOf(file);
    });
    expect(wrong).toEqual([]);
  });

  it.each([
    /^src\/.* → (?!(src|lua)\/)/,
    /^src\/locks\/.* → (?!src\/locks\/|lua\/(lock|lib)\/)/,
    // A package, which the service does not use.
    /^src\/client\/.* → (?!src\/client\/)/,
    /^src\/(?!client\/).* → src\/client\//,
    // A script stands beside its callers.
    /^src\/(?!(locks|strategies)\/).* → lua\/lock\//,
    /^src\/(?!(store\/redis|access)\/).* → lua\/sale\//,
    /^src\/(?!locks\/).* → lua\/lib\//,
    /^lua\/(lock|sale)\/.* → (?!lua\/lib\/)/,
    /^lua\/lib\/.* → /,
    // Implementations of one interface stay apart.
    new RegExp(`^src/(locks|strategies)/(?!registry|index).* → src/\\1/(?!${SHARED})`),
    /^src\/strategies\/strategy\.ts → src\/strategies\//,
    // Registries are for composition roots and contract tests.
    /^(?!src\/(commands|service)\/|test\/(contract|support)\/|(lab|bench|scripts)\/).* → src\/(strategies|locks)\/registry\.ts$/,
    /^lab\/.* → ((bench|test|scripts)\/|src\/(?!config|domain|local|locks|service))/,
    /^lab\/audit\/.* → (src\/(?!config)|lab\/(?!audit|history|kit|servers\/stores))/,
    /^lab\/kit\/.* → (?!lab\/kit\/)/,
    /^bench\/(kit|reference)\/.* → bench\/(suites|race|load|main)/,
    /^bench\/load\/.* → (src|lab\/(?!history|kit)|bench\/(suites|race|main))/,
    /^bench\/suites\/(\w+)\/.* → bench\/(race|main|suites\/(?!\1\/))/,
    /^bench\/race\/.* → bench\/(suites|main)/,
    /^bench\/race\/page\/.* → (?!src\/web\/|bench\/(race\/(page\/|view)|kit\/labels))/,
    /^test\/(?!bench\/).* → bench\//,
    /^examples\/.* → (?!examples\/|src\/client\/)/,
    /^(?!examples|test\/examples).* → examples\//,
  ])('leave out %s', (rule) => {
    const importer = new RegExp(`${rule.source.split(' → ')[0]} → `);
    expect(files.some((file) => importer.test(`${file} → `))).toBe(true);
    expect(imports.filter((one) => rule.test(one))).toEqual([]);
  });

  it('include every script', () => {
    const used = new Set([...importsOf.values()].flat());
    expect(files.filter((file) => file.startsWith('lua/') && !used.has(file))).toEqual([]);
  });

  it('form no circle, types included', () => {
    const isDone = new Set<string>();
    const visit = (file: string, path: readonly string[]): void => {
      expect(path, `a circle: ${[...path, file].join(' → ')}`).not.toContain(file);
      if (isDone.has(file)) return;
      for (const imported of importsOf.get(file) ?? []) visit(imported, [...path, file]);
      isDone.add(file);
    };
    for (const file of files) visit(file, []);
  });
});

it('a file has at most 400 lines, an implementation 150, and a function of the programs 60', () => {
  const isLong = (file: string) =>
    text(file).split('\n').length > (isImplementation(file) ? 150 : 400) ||
    (!/^test\/|\.lua$/.test(file) && functionsOf(text(file)).some(({ length }) => length > 60));
  expect(files.filter(isLong)).toEqual([]);
});

/**
 * Functions and methods with their length, by the indentation that the formatter keeps. Nested code counts, except a returned table
 * of methods: each of these counts by itself.
 */
function functionsOf(source: string): { name: string; length: number }[] {
  const lines = source.split('\n');
  /** @returns the first line after `from` with this start, which ends what `from` begins */
  const endOf = (from: number, start: string) =>
    lines.findIndex((other, j) => j > from && other.startsWith(start));
  return lines.flatMap((line, from) => {
    const [, indent = '', named, method] =
      /^(\s*)(?:export )?(?:default )?(?:override |static |async )*(?:function\*? (\w+)|(#?\w+)\(.*(?:\{|\($))/.exec(
        line,
      ) ?? [];
    const name = named ?? method;
    if (name === undefined || /^(if|for|while|switch|catch)$/.test(name)) return [];
    const opened = line.endsWith('{') ? from : endOf(from, `${indent})`);
    if (!lines[opened]?.endsWith('{')) return []; // a call
    const to = endOf(opened, `${indent}}`);
    const table = lines.findIndex((other, j) => j > opened && j < to && other === `${indent}  return {`);
    const lent = table === -1 ? 0 : endOf(table, `${indent}  }`) - table + 1;
    return [{ name, length: to - from + 1 - lent }];
  });
}

it('the tiers name test files', () => {
  const isUnknown = (pattern: string) => {
    const isNamed = new RegExp(`^${pattern.replaceAll('.', '\\.').replace('*', '[^/]*')}$`);
    return !files.some((file) => isNamed.test(file));
  };
  const patterns = [...FULL_ONLY, ...TIMED, ...IN_BOTH, ...QUICK_ONLY, ...ON_VALKEY];
  expect(patterns.filter(isUnknown)).toEqual([]);
});
