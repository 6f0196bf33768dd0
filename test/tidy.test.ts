/** The rules of the house: who may import whom, and how large a file or function may be. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const root = fileURLToPath(new URL('../', import.meta.url));

const files = ['src', 'bench', 'test', 'lua']
  .flatMap((folder) =>
    readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' }).map((f) =>
      path.join(folder, f),
    ),
  )
  .filter(
    (file) =>
      /\.(ts|lua)$/.test(file) && !file.startsWith('src/generated/') && !file.startsWith('bench/results/'),
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

/** `src/locks/redis.ts` → `locks`; `src/main.ts` → `main.ts`. */
const partOf = (file: string) => file.split('/')[1]!;

/** Each part may use all parts to its left. `generated` is Prisma's client. */
const LAYERS: string[][] = [
  ['generated'],
  ['domain'],
  ['config'],
  ['metrics', 'local'],
  ['store'],
  ['locks', 'points'],
  ['strategies'],
  ['orders', 'tasks'],
  ['http'],
  ['workers.ts'],
  ['main.ts', 'reconcile.ts'],
];
const layerOf = (part: string) => LAYERS.findIndex((layer) => layer.includes(part));

/** Of a family with one interface, implementations never import each other. */
const SHARED: Record<string, string[]> = {
  locks: [
    'lock.ts',
    'keys.ts',
    'local-queue.ts',
    'plain-lease.ts',
    'polled-lock.ts',
    'polling.ts',
    'redis-claim.ts',
    'renewing-lease.ts',
    'script.ts',
    'server-clock.ts',
    'settled.ts',
    'vote.ts',
    'waiting-lock.ts',
    'wake.ts',
    'registry.ts',
  ],
  strategies: [
    'strategy.ts',
    'redis-base.ts',
    'postgres-base.ts',
    'batches.ts',
    'sold-out-latch.ts',
    'registry.ts',
  ],
};

const source = files.filter((file) => file.startsWith('src/') && file.endsWith('.ts'));

describe('imports', () => {
  it('are found at all', () => {
    expect(importsOf('src/main.ts').length).toBeGreaterThan(15);
    expect(source.length).toBeGreaterThan(40);
  });

  it.each(source)('%s imports only what stands to its left', (file) => {
    const part = partOf(file);
    expect(layerOf(part), `${part} has no place in the order`).toBeGreaterThanOrEqual(0);
    for (const imported of importsOf(file)) {
      expect(imported.startsWith('src/'), `${imported} is outside src`).toBe(true);
      const other = partOf(imported);
      if (other !== part)
        expect(layerOf(other), `${part} may not import ${other}`).toBeLessThan(layerOf(part));
    }
    if (part === 'domain') expect(text(file)).not.toMatch(/from '(?!\.)/);
  });

  it('leave implementations of one interface apart', () => {
    for (const [family, shared] of Object.entries(SHARED)) {
      for (const file of source.filter((f) => partOf(f) === family && !f.endsWith('registry.ts'))) {
        for (const imported of importsOf(file).filter((f) => partOf(f) === family)) {
          expect(shared, `${file} imports ${imported}`).toContain(path.basename(imported));
          expect(path.basename(imported), `${file} imports a registry`).not.toBe('registry.ts');
        }
      }
    }
  });

  it.each([
    ['bench/kit/', /^bench\/(suites|load|audit|main)/],
    ['bench/load/', /^(src|bench\/(suites|audit|main))/],
    ['bench/audit/', /^(src\/(strategies|locks|orders)|bench\/(suites|load|main))/],
    ['bench/suites/', /^bench\/main/],
    ['src/', /^(bench|test)\//],
  ])('of %s leave out %s', (folder, forbidden) => {
    const own = files.filter((file) => file.startsWith(folder) && file.endsWith('.ts'));
    expect(own.length).toBeGreaterThan(2);
    for (const file of own)
      for (const imported of importsOf(file)) expect(imported, file).not.toMatch(forbidden);
  });

  it('keep suites apart, and make no circle in the bench, types included', () => {
    const bench = files.filter((file) => file.startsWith('bench/') && file.endsWith('.ts'));
    for (const file of bench.filter((one) => one.startsWith('bench/suites/'))) {
      const other = importsOf(file).filter(
        (one) => one.startsWith('bench/suites/') && path.dirname(one) !== path.dirname(file),
      );
      expect(other, file).toEqual([]);
    }
    const done = new Set<string>();
    const visit = (file: string, above: readonly string[]): void => {
      expect(above, `a circle: ${[...above, file].join(' → ')}`).not.toContain(file);
      if (done.has(file)) return;
      for (const imported of importsOf(file).filter((one) => bench.includes(one)))
        visit(imported, [...above, file]);
      done.add(file);
    };
    for (const file of bench) visit(file, []);
  });

  it('keep registries for composition roots and contract tests', () => {
    const allowed = /^(src\/(main|reconcile)\.ts|test\/contract\/.*|bench\/.*)$/;
    for (const file of files.filter((f) => f.endsWith('.ts'))) {
      if (importsOf(file).some((f) => /src\/(strategies|locks)\/registry\.ts$/.test(f)))
        expect(file).toMatch(allowed);
    }
  });
});

describe('the environment and signals', () => {
  it.each(
    source.filter((file) => !['src/main.ts', 'src/reconcile.ts', 'src/local/guardian.ts'].includes(file)),
  )('%s leaves them to main.ts', (file) => {
    expect(text(file)).not.toMatch(/process\.env\b(?!`)|process\.on\(/);
  });
});

describe('budgets', () => {
  it.each(files)('%s', (file) => {
    const lines = text(file).split('\n').length;
    const implementation =
      /^src\/(strategies|locks)\//.test(file) && !SHARED[partOf(file)]?.includes(path.basename(file));
    expect(lines).toBeLessThanOrEqual(implementation ? 150 : 400);
    if (file.endsWith('.ts') && !file.startsWith('test/')) {
      for (const { name, length } of functionsOf(text(file))) expect(length, name).toBeLessThanOrEqual(60);
    }
  });
});

/** Functions and methods by their first line, with their length; told by indentation, which the formatter keeps. */
function functionsOf(source: string): { name: string; length: number }[] {
  const lines = source.split('\n');
  const found: { name: string; from: number; to: number }[] = [];
  for (const [i, line] of lines.entries()) {
    const start =
      /^(\s*)(?:export )?(?:default )?(?:async )?(?:function\*? (\w+)|(?:override |static |readonly )*(?:async )?(#?\w+)\([^)]*\)(?:: [^{]+)? \{$)/.exec(
        line,
      );
    if (start === null || /^\s*(?:if|for|while|switch|catch)\b/.test(line)) continue;
    const end = lines.findIndex((other, j) => j > i && other.startsWith(`${start[1]}}`));
    if (end > i) found.push({ name: start[2] ?? start[3] ?? line, from: i, to: end });
  }
  // A function that stands in another one is counted by itself, not again in the outer one.
  return found.map((outer) => {
    const inner = found.filter((f) => f.from > outer.from && f.to < outer.to);
    const nested = inner.filter((f) => !inner.some((g) => g.from < f.from && g.to > f.to));
    const lent = nested.reduce((sum, f) => sum + f.to - f.from + 1, 0);
    return { name: outer.name, length: outer.to - outer.from + 1 - lent };
  });
}

describe('scripts', () => {
  it.each(files.filter((file) => file.endsWith('.lua')))(
    '%s opens with purpose, KEYS, ARGV and replies',
    (file) => {
      const header = text(file).split(/^[^-\n]/m)[0]!;
      for (const word of ['KEYS', 'ARGV', 'Repl'])
        if (word !== 'ARGV' || /ARGV\[/.test(text(file))) expect(header).toContain(word);
    },
  );
});
