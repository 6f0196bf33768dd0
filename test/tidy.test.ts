/** Import rules, and budgets for files and functions. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { FULL_ONLY, IN_BOTH, ON_VALKEY, QUICK_ONLY, TIMED } from './tiers.ts';

const root = fileURLToPath(new URL('../', import.meta.url));

const files = ['src', 'lab', 'bench', 'test', 'lua', 'scripts']
  .flatMap((folder) =>
    readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' }).map((f) =>
      path.join(folder, f),
    ),
  )
  .filter(
    (file) =>
      /\.(tsx?|lua)$/.test(file) && !file.startsWith('src/generated/') && !file.startsWith('bench/results/'),
  )
  .sort();
const text = (file: string) => readFileSync(path.join(root, file), 'utf8');

/** What a file imports from this repository, as paths from its root. */
function importsOf(file: string): string[] {
  const specifiers = [...text(file).matchAll(/(?:from|import)\s*\(?\s*'(\.[^']+)'/g)].map(
    (match) => match[1]!,
  );
  return specifiers.map((specifier) => path.join(path.dirname(file), specifier));
}

/** `src/locks/kit/poll.ts` → `locks`. */
const partOf = (file: string) => file.split('/')[1]!;

/** Each part may import every part before it. `generated` is Prisma's client. */
const LAYERS: string[][] = [
  ['generated'],
  ['domain'],
  ['config'],
  ['concurrency', 'locks'],
  ['metrics', 'local'],
  ['store'],
  ['points', 'strategies', 'tasks'],
  ['orders', 'access'],
  ['http'],
  ['web'],
  ['service'],
  ['commands'],
];
const layerOf = (part: string) => LAYERS.findIndex((layer) => layer.includes(part));

/** What the implementations of a family share; every other file of the family's folder is an implementation. */
const SHARED = [
  /^src\/locks\/(all-of|callers|clients|fencing|hooks|index|lock|reentrant|registry)\.ts$/,
  /^src\/locks\/(adapters|kit)\//,
  /^src\/strategies\/(strategy|registry)\.ts$/,
  /^src\/strategies\/kit\//,
];
const isImplementation = (file: string) =>
  /^src\/(locks|strategies)\//.test(file) && !SHARED.some((shared) => shared.test(file));

const source = files.filter((file) => file.startsWith('src/') && /\.tsx?$/.test(file));

describe('imports', () => {
  it('are found at all', () => {
    expect(importsOf('src/service/service.ts').length).toBeGreaterThan(15);
    expect(source.length).toBeGreaterThan(40);
  });

  it.each(source)('%s imports only earlier layers', (file) => {
    const part = partOf(file);
    expect(layerOf(part), `${part} has no place in the order`).toBeGreaterThanOrEqual(0);
    for (const imported of importsOf(file)) {
      expect(imported.startsWith('src/'), `${imported} is outside src`).toBe(true);
      const other = partOf(imported);
      if (other !== part)
        expect(layerOf(other), `${part} may not import ${other}`).toBeLessThan(layerOf(part));
    }
    if (part === 'domain') expect(text(file)).not.toMatch(/from '(?!\.)/);
    if (part === 'locks') for (const imported of importsOf(file)) expect(partOf(imported)).toBe('locks');
  });

  it('keep implementations of one interface apart', () => {
    const implementations = source.filter(isImplementation);
    expect(implementations.length).toBeGreaterThan(25);
    for (const file of source.filter(
      (f) => !/\/(registry|locks\/index)\.ts$/.test(f) && /^src\/(locks|strategies)\//.test(f),
    )) {
      for (const imported of importsOf(file).filter((f) => partOf(f) === partOf(file))) {
        expect(isImplementation(imported), `${file} imports ${imported}`).toBe(false);
        expect(imported, `${file} imports a registry`).not.toMatch(/registry\.ts$/);
      }
    }
  });

  it('form no circle, types included', () => {
    const isDone = new Set<string>();
    const visit = (file: string, path: readonly string[]): void => {
      expect(path, `a circle: ${[...path, file].join(' → ')}`).not.toContain(file);
      if (isDone.has(file)) return;
      for (const imported of importsOf(file)) if (files.includes(imported)) visit(imported, [...path, file]);
      isDone.add(file);
    };
    for (const file of files.filter((f) => /\.tsx?$/.test(f))) visit(file, []);
  });

  it.each([
    ['lab/', /^(bench|test|scripts)\/|^src\/(?!config|local|locks|points|store)/],
    ['lab/audit/', /^src\/(?!config)|^lab\/(?!audit|history|kit|servers\/stores)/],
    ['lab/kit/', /^(?!lab\/kit\/)/],
    ['bench/kit/', /^bench\/(suites|race|load|main)/],
    ['bench/reference/', /^bench\/(suites|race|load|main)/],
    ['bench/load/', /^(src|lab\/(?!history|kit)|bench\/(suites|race|main))/],
    ['bench/suites/', /^bench\/(race|main)/],
    ['bench/race/', /^bench\/(suites|main)/],
    ['bench/race/page/', /^(?!src\/web\/|bench\/race\/(page\/|view))/],
    ['src/', /^(lab|bench|test|scripts)\//],
  ])('of %s leave out %s', (folder, forbidden) => {
    const own = files.filter((file) => file.startsWith(folder) && /\.tsx?$/.test(file));
    expect(own.length).toBeGreaterThan(2);
    for (const file of own)
      for (const imported of importsOf(file)) expect(imported, file).not.toMatch(forbidden);
  });

  it('of tests outside test/bench leave out bench', () => {
    for (const file of files.filter((one) => /^test\/(?!bench\/).*\.ts$/.test(one)))
      for (const imported of importsOf(file)) expect(imported, file).not.toMatch(/^bench\//);
  });

  it('keep the suites of the bench apart', () => {
    for (const file of files.filter((one) => one.startsWith('bench/suites/'))) {
      const others = importsOf(file).filter(
        (one) => one.startsWith('bench/suites/') && path.dirname(one) !== path.dirname(file),
      );
      expect(others, file).toEqual([]);
    }
  });

  it('keep registries for composition roots and contract tests', () => {
    const allowed =
      /^(src\/(commands|service)\/.*|test\/(contract|support)\/.*|lab\/.*|bench\/.*|scripts\/.*)$/;
    for (const file of files.filter((f) => f.endsWith('.ts'))) {
      if (importsOf(file).some((f) => /src\/(strategies|locks)\/registry\.ts$/.test(f)))
        expect(file).toMatch(allowed);
    }
  });
});

describe('a failure', () => {
  const readers = source.filter((file) => !/^src\/(store\/failures|locks\/adapters)\//.test(file));

  it('is found in the text of a message by store/failures and the adapters of locks only', () => {
    const reading =
      /\bmessage\)?\.(startsWith|includes|match|search)|\bmessage\s*[!=]==|\.(test|exec)\([^()]*\bmessage\b/;
    expect(reading.test("error.message.startsWith('READONLY')")).toBe(true);
    for (const file of readers) expect(text(file), file).not.toMatch(reading);
  });

  it('keeps its kind: nothing reads a reason apart', () => {
    for (const file of readers) expect(text(file), file).not.toMatch(/\breason\.(startsWith|includes|match)/);
  });

  it('of a retry is one list', () => {
    const lists = source.filter((file) => /\bCONFLICTS\b|serialization-failure/.test(text(file)));
    expect(lists).toEqual(['src/store/failures/postgres.ts']);
  });
});

describe('the fate of a reservation', () => {
  it('is decided in orders/fate.ts only', () => {
    const deciding = /discardedUnits: reservation|inRedis: \{ owner/;
    const places = source.filter((file) => deciding.test(text(file)));
    expect(places).toEqual(['src/orders/fate.ts']);
  });

  it('does not depend on a kind of strategy', () => {
    for (const file of source) expect(text(file), file).not.toMatch(/kind\s*[!=]==\s*'(reserves|commits)'/);
    expect(
      importsOf('src/strategies/strategy.ts').filter((one) => one.startsWith('src/strategies/')),
    ).toEqual([]);
  });
});

describe('pages', () => {
  it.each(source.filter((file) => file.startsWith('src/web/')))(
    '%s takes only types and pure code from the service',
    (file) => {
      for (const [, statement, from] of text(file).matchAll(/(import [^;]*?) from '(\.\.\/\.\.\/[^']+)'/g))
        if (!from!.startsWith('../../domain/')) expect(statement, from).toMatch(/^import type /);
    },
  );
});

describe('the environment and signals', () => {
  // A file that no file imports is the entry of a process.
  const imported = new Set(source.flatMap(importsOf));

  it.each(source.filter((file) => imported.has(file)))(
    '%s leaves them to the entries of processes',
    (file) => {
      expect(text(file)).not.toMatch(/process\.env\b(?!`)|process\.on\(/);
    },
  );
});

describe('budgets', () => {
  it.each(files)('%s', (file) => {
    const lines = text(file).split('\n').length;
    expect(lines).toBeLessThanOrEqual(isImplementation(file) ? 150 : 400);
    if (/\.tsx?$/.test(file) && !file.startsWith('test/')) {
      for (const { name, length } of functionsOf(text(file))) expect(length, name).toBeLessThanOrEqual(60);
    }
  });
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

describe('tiers', () => {
  it.each([...FULL_ONLY, ...TIMED, ...IN_BOTH, ...QUICK_ONLY, ...ON_VALKEY])(
    '%s names test files',
    (pattern) => {
      const isNamed = new RegExp(`^${pattern.replaceAll('.', '\\.').replace('*', '[^/]*')}$`);
      expect(files.filter((file) => isNamed.test(file))).not.toEqual([]);
    },
  );
});

describe('scripts', () => {
  it.each(files.filter((file) => file.endsWith('.lua') && !file.startsWith('lua/lib/')))(
    '%s opens with purpose, KEYS, ARGV and replies',
    (file) => {
      const header = text(file).split(/^[^-\n]/m)[0]!;
      for (const word of ['KEYS', 'ARGV', 'Repl'])
        if (word !== 'ARGV' || /ARGV\[/.test(text(file))) expect(header).toContain(word);
    },
  );

  it.each(files.filter((file) => file.startsWith('lua/lib/')))('%s opens with what it defines', (file) => {
    expect(text(file)).toMatch(/^-- Defines /);
  });
});
