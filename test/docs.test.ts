/** The documents match the repository: links, commands, cited tests, and lists of what exists. */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { limits } from '../src/config/limits.ts';
import { openApiDocument } from '../src/http/openapi.ts';
import { type Problem, problems } from '../src/http/problems.ts';
import { SERVICE_ROLE } from '../src/local/postgres-roles.ts';
import { attemptTally } from '../src/metrics/attempt-tally.ts';
import * as instruments from '../src/metrics/instruments.ts';
import { backgroundHealth } from '../src/metrics/loop-health.ts';

const root = new URL('../', import.meta.url);
const text = (file: string) => readFileSync(new URL(file, root), 'utf8');
const filesBelow = (folder: string) =>
  readdirSync(new URL(folder, root), { recursive: true, encoding: 'utf8' }).map(
    (file) => `${folder}/${file}`,
  );

const documents = [
  'README.md',
  'CHANGELOG.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  ...filesBelow('docs').filter((file) => file.endsWith('.md')),
];
const matches = (page: string, pattern: RegExp) => [...page.matchAll(pattern)].map((match) => match[1]!);
/** The fenced samples of a language. */
const samples = (page: string, language: string) =>
  matches(page, new RegExp(`^ *\`\`\`${language}\\n([\\s\\S]*?)^ *\`\`\`$`, 'gm'));
const prose = (page: string) => page.replace(/^```[\s\S]*?^```$/gm, '');
/** The part of a page below a heading, up to the next heading of the same level. */
const section = (page: string, heading: string) =>
  page.split(`\n${heading}\n`)[1]?.split(new RegExp(`^${heading.replace(/[^#].*/, '')} `, 'm'))[0] ?? '';
const block = (page: string, name: string) =>
  page.split(`<!-- ${name} -->`)[1]!.split(`<!-- /${name} -->`)[0]!;
/** First cells of a table's rows, without the head's `STRATEGY=`. */
const rows = (part: string) => matches(part, /^\| `([^`=]+)`/gm);
const sorted = (names: Iterable<string>) => [...new Set(names)].sort();

const { scripts } = JSON.parse(text('package.json')) as { scripts: Readonly<Record<string, string>> };
/** Variables of Node and of bench/load/k6. */
const NOT_OURS = ['NODE_EXTRA_CA_CERTS', 'URL', 'STOCK', 'PATH', 'LD_LIBRARY_PATH'];

/** The source that reads the options of a script. */
function programOf(script: string): string {
  const [, file = ''] = /node (?:--\S+ (?:tsx )?)*((?:bench|dist|scripts|src)\/\S+)/.exec(script) ?? [];
  const suites = file === 'bench/main.ts' ? ['bench/kit/options.ts', ...filesBelow('bench/suites')] : [];
  const own = file.replace(/^dist(.*)\.js$/, 'src$1.ts');
  return [own, ...suites]
    .filter((one) => one.endsWith('.ts'))
    .map(text)
    .join('\n');
}

/** GitHub's anchor of a heading. */
const anchorOf = (heading: string) =>
  heading
    .replace(/\[([^\]]*)\]\([^)]*\)/g, '$1')
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, '')
    .trim()
    .replace(/\s/g, '-');

describe.each(documents)('%s', (document) => {
  const page = text(document);

  it('has no broken link', () => {
    const isBroken = (target: string): boolean => {
      if (/^https?:/.test(target)) return false;
      const [path = '', anchor] = target.split('#');
      const url = path === '' ? new URL(document, root) : new URL(path, new URL(document, root));
      if (!existsSync(url)) return true;
      if (anchor === undefined) return false;
      const headings = matches(prose(readFileSync(url, 'utf8')), /^#+ (.+)$/gm);
      return !headings.map(anchorOf).includes(anchor);
    };
    const links = matches(prose(page), /\]\(([^)\s]+)\)/g);
    const pictures = matches(prose(page), /(?:src|srcset)="([^"]+)"/g);
    expect([...links, ...pictures].filter(isBroken)).toEqual([]);
  });

  it('names only existing npm scripts, options, files and variables', () => {
    for (const [, script, args = ''] of page.matchAll(
      /npm run (?:--silent )?([\w:]+)((?: +(?![#|&>])[^\s`"]+)*)/g,
    )) {
      expect(scripts).toHaveProperty([script!]);
      const source = programOf(scripts[script!]!);
      for (const option of matches(args, /(?<= )--([a-z][a-z-]+)/g))
        expect(source, `npm run ${script} -- --${option}`).toMatch(
          new RegExp(`(^|[^\\w-])'?${option}'?[:,]`, 'm'),
        );
    }
    for (const code of samples(page, 'sh')) {
      execFileSync('sh', ['-n'], { input: code });
      // The files exist, except those that the page tells the reader to write.
      const named = matches(code, /(?<![\w./-])((?:src|test|bench|lua|scripts|dist|\.ci)\/[\w./-]*\w)/g);
      for (const file of named.filter(
        (one) => !one.startsWith('bench/results/latest') && !page.includes(`\`${one}\`:\n`),
      ))
        expect(existsSync(new URL(file.replace(/^dist(.*)\.js$/, 'src$1.ts'), root)), file).toBe(true);
    }
    const lines = page.split('\n').filter((line) => /(npm (run|start)|docker compose)/.test(line));
    for (const variable of matches(
      [...lines, ...samples(page, 'sh')].join('\n'),
      /(?<![\w-])([A-Z]+(?:_[A-Z]+)*)=/g,
    ))
      if (variable.startsWith('BENCH_')) expect(text('lab/remote.ts')).toContain(`\`${variable}=`);
      else if (!NOT_OURS.includes(variable))
        expect(text('.env.example'), variable).toContain(`\n# ${variable}=`);
  });

  it('has tables whose rows have as many cells as the head', () => {
    const cells = (row: string): number => row.split(/(?<!\\)\|/).length;
    const tables = matches(prose(page), /^(\|.*\n\|[-:| ]+\|\n(?:.+\n)*)/gm);
    for (const [head = '', ...rows] of tables.map((table) => table.trim().split('\n'))) {
      const others = rows.filter((row) => cells(row) !== cells(head) && !row.startsWith('<!--'));
      expect(others, head).toEqual([]);
    }
  });

  it('has samples of JSON that parse', () => {
    for (const json of samples(page, 'json')) expect(() => JSON.parse(json), json).not.toThrow();
  });

  it('cites existing tests, each in its file', () => {
    const files = new Map(
      [...page.matchAll(/^\[([a-z-]+)\]: (\S+)$/gm)].map(([, name, target]) => [
        name!,
        new URL(target!, new URL(document, root)),
      ]),
    );
    const cited = [...prose(page).matchAll(/“([^”]+)”(?:\s\[([a-z-]+)\])?/g)].map(([, title, file]) => ({
      title: title!.replace(/\s+/g, ' '),
      file: file ?? '',
    }));
    const isMissing = ({ title, file }: { readonly title: string; readonly file: string }): boolean => {
      const url = files.get(file);
      if (url === undefined || !existsSync(url)) return true;
      const titles = titlesIn(url.href.slice(root.href.length)).filter(({ source }) => source.length > 12);
      return !titles.some((pattern) => pattern.test(title));
    };
    expect(cited.filter(isMissing)).toEqual([]);
    for (const file of files.keys()) expect(cited.map((citation) => citation.file)).toContain(file);
  });
});

/** Titles of tests and of their groups as patterns; values that vitest fills in match anything. */
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

it('the README fits on two screens, and the failure model cites tests', () => {
  expect(text('README.md').split('\n').length).toBeLessThanOrEqual(150);
  const model = text('docs/reference/failure-model.md');
  const behavior = model
    .split('\n')
    .filter((line) => /^\| (?!---|behavior|failure \||what fails|\[)/.test(line));
  expect(behavior.length).toBeGreaterThan(50);
  for (const row of behavior) expect(row).toMatch(/“/);
});

/** Names of the implementations in a folder: files that export a description. */
const implementations = (folder: string) =>
  sorted(
    filesBelow(folder)
      .filter((file) => file.endsWith('.ts') && /^export const description\b/m.test(text(file)))
      .map((file) => file.replace(/^.*\/|\.ts$/g, '')),
  );
const inExample = (name: string) => new RegExp(`[ :]${name}[\\s,.]`);

describe('every strategy', () => {
  const strategies = implementations('src/strategies');
  const reference = text('docs/reference/strategies.md');

  it('is in the reference and in .env.example', () => {
    expect(sorted(rows(block(reference, 'strategies'))), 'generated: npm run readme').toEqual(strategies);
    const meeting = rows(section(reference, '## Contention'));
    expect(sorted(meeting), 'a row in docs/reference/strategies.md, Contention').toEqual(strategies);
    for (const name of strategies) expect(text('.env.example'), name).toMatch(inExample(name));
  });

  it.each(strategies)('has its explanation, a diagram, and its use: %s', (name) => {
    const part = section(text('docs/explanation/strategies.md'), `## \`${name}\``);
    expect(part, `a section of ${name} in docs/explanation/strategies.md`).not.toBe('');
    expect(part.split('```').length, `one diagram in the section of ${name}`).toBe(3);
    expect(part, `a paragraph on when to choose ${name}`).toContain('**Choose it**');
    expect(text('docs/how-to/choose-a-strategy.md')).toContain(`\`${name}\``);
  });
});

it('every lock is in the reference, explained, and in .env.example', () => {
  const locks = implementations('src/locks');
  const reference = text('docs/reference/locks.md');
  const explanation = text('docs/explanation/locks.md');
  expect(sorted(rows(block(reference, 'capabilities')))).toEqual(locks);
  expect(sorted(rows(block(reference, 'flaws')))).toEqual(locks);
  expect(sorted(rows(section(reference, '## Round trips')))).toEqual(locks);
  const ladder = rows(section(explanation, '## The ladder'));
  for (const name of locks) {
    if (section(explanation, `## \`${name}\``) === '') expect(ladder).toContain(name);
    expect(text('.env.example'), name).toMatch(inExample(name));
  }
});

describe('the configuration reference', () => {
  const page = text('docs/reference/configuration.md');

  it('has every variable with its default', () => {
    const given = [...text('.env.example').matchAll(/^# ([A-Z_]+)=(.*)$/gm)].map(([, name, value]) => [
      name,
      value,
    ]);
    const listed = [...page.matchAll(/^\| `([A-Z_]+)` \| (?:`([^`]*)`|–) \|/gm)].map(([, name, value]) => [
      name,
      value ?? '',
    ]);
    expect(Object.fromEntries(listed)).toEqual(Object.fromEntries(given));
  });

  it('has every limit with its value and unit', () => {
    const listed = [...page.matchAll(/^\| `([a-z][\w.]+)` \| (\d+)( m?s)? \|/gm)];
    expect(listed.length).toBeGreaterThan(15);
    for (const [, name, value, unit] of listed) {
      expect(unit, name).toBe(name!.endsWith('Ms') ? ' ms' : name!.endsWith('S') ? ' s' : undefined);
      const actual = name!
        .split('.')
        .reduce<unknown>((at, key) => (at as Record<string, unknown>)?.[key], limits);
      expect(actual, name).toBe(Number(value));
    }
  });
});

it('one version: of the package, the changes, the README, the API and the sample of the locks', () => {
  const { version } = JSON.parse(text('package.json')) as { readonly version: string };
  expect(text('CHANGELOG.md')).toContain(`\n## ${version} – `);
  expect(text('README.md')).toContain(`Version ${version},`);
  expect(text('docs/how-to/use-the-locks.md')).toContain(`stampede-locks-${version}.tgz`);
  expect(openApiDocument().info.version).toBe(version);
});

it('says of each member of a problem what it means', () => {
  for (const [slug, { meaning, members = {} }] of Object.entries<Problem>(problems)) {
    for (const member of Object.keys(members)) expect(meaning, slug).toContain(`\`${member}\``);
  }
});

it('the metrics reference has every metric with its labels', () => {
  const created = instruments.createInstruments();
  // Metrics that are read at each scrape: their source does not matter here.
  for (const [name, measure] of Object.entries(instruments))
    if (name.startsWith('measure')) (measure as (of: typeof created, from: object) => unknown)(created, {});
  attemptTally(created.registry, 'lua');
  backgroundHealth(created.registry, { failing() {}, recovered() {} });
  /** Database roles, not metrics. */
  const ROLES = [SERVICE_ROLE, 'stampede_owner'];
  const metrics = created.registry.getMetricsAsArray().filter(({ name }) => name.startsWith('stampede_'));
  const names = metrics.map(({ name }) => name);

  const page = text('docs/reference/metrics.md');
  expect(sorted(rows(page))).toEqual(sorted(names));
  for (const metric of metrics) {
    const { labelNames } = metric as { readonly labelNames?: readonly string[] };
    const cell = new RegExp(`^\\| \`${metric.name}\` \\|[^|]*\\|([^|]*)\\|`, 'm').exec(page)![1]!;
    if (labelNames) expect(matches(cell, /`(\w+)`/g), metric.name).toEqual(labelNames);
  }
  for (const document of documents)
    for (const name of matches(text(document), /\b(stampede_[a-z_]+)/g))
      if (!ROLES.includes(name)) expect(names, document).toContain(name);

  // Metrics that Prometheus and Grafana read exist, and the dashboard shows every metric.
  const all = created.registry.getMetricsAsArray().map(({ name }) => name);
  const namesIn = (file: string) =>
    matches(text(file), /\b((?:stampede|process|nodejs)_[a-z0-9_]+)/g).map((name) =>
      name.replace(/_(bucket|sum|count)$/, ''),
    );
  for (const file of ['grafana/stampede.json', 'prometheus/alerts.yml', 'prometheus/alerts.test.yml'])
    for (const name of namesIn(`ops/${file}`)) expect(all, file).toContain(name);
  expect(sorted(namesIn('ops/grafana/stampede.json'))).toEqual(expect.arrayContaining(names));
});

it('every alert has a paragraph in docs/how-to/recover.md, and two tests', () => {
  const alerts = text('ops/prometheus/alerts.yml');
  const names = matches(alerts, /- alert: (\w+)/g);
  expect(names.length).toBeGreaterThan(15);
  expect(matches(alerts, /runbook: (\S+)/g)).toEqual(
    names.map((name) => `docs/how-to/recover.md#${anchorOf(name)}`),
  );
  const page = section(text('docs/how-to/recover.md'), '## When an alert fires');
  expect(matches(page, /^### (\w+)$/gm)).toEqual(names);
  const tests = text('ops/prometheus/alerts.test.yml');
  for (const name of names)
    for (const what of ['fires', 'is quiet']) expect(tests).toContain(`- name: ${name} ${what}\n`);
});

describe('the data reference', () => {
  const page = text('docs/reference/data.md');

  it('has every table and named constraints that exist', () => {
    const tables = matches(text('prisma/schema.prisma'), /@@map\("(\w+)"\)/g);
    const [listed = '', constraints = ''] = section(page, '## Postgres').split('Constraints that keep');
    expect(sorted(rows(listed))).toEqual(sorted(tables));
    const sql = filesBelow('prisma/migrations')
      .filter((file) => file.endsWith('.sql'))
      .map(text)
      .join();
    for (const name of rows(constraints))
      expect(sql).toMatch(new RegExp(`CONSTRAINT (TRIGGER )?"?${name}\\b|INDEX "${name}"`));
  });

  it('has every key of Redis', () => {
    const source = filesBelow('src').filter((file) => file.endsWith('.ts') && !file.includes('/generated/'));
    const parts = source
      .map(text)
      .flatMap((code) => [
        ...matches(code, /\$\{prefix\}:([a-z]+)/g),
        ...matches(code, /\}\}:([a-z]+)/g),
        ...matches(code, /keyOf\(\w+, '([a-z]+)'\)/g),
      ]);
    expect(new Set(parts).size).toBeGreaterThan(8);
    for (const part of parts) expect(section(page, '## Redis'), part).toContain(`:${part}`);
  });
});

describe('one word, one meaning', () => {
  /** Private words that the field has its own words for. */
  const RETIRED =
    /\b(told|untold|hears?|glance|needy|put[ -]back|gives? back|given back|turned down|once more|got rid of|aftermath|shortcomings|unit_moves|restock_moves|of its own making)\b/i;
  const sources = ['src', 'lab', 'bench', 'lua', 'scripts']
    .flatMap(filesBelow)
    .filter((file) => /\.(tsx?|js|lua)$/.test(file) && !/^(src\/generated|bench\/results)/.test(file));

  it('the glossary defines each term once', () => {
    const terms = matches(text('docs/reference/glossary.md'), /^\| \*\*([^*]+)\*\*/gm);
    expect(terms.length).toBeGreaterThan(50);
    expect(terms.filter((term, n) => terms.indexOf(term) !== n)).toEqual([]);
  });

  it('no document, name or comment has a retired word', () => {
    const found = [...documents, ...sources].flatMap((file) =>
      text(file)
        .split('\n')
        .flatMap((line) => (RETIRED.test(line) ? [`${file}: ${line.trim()}`] : [])),
    );
    expect(found).toEqual([]);
  });
});

describe('the reference of results.json', () => {
  const page = text('docs/reference/results-json.md');
  /** Names in the first cells of a part's rows. */
  const listed = (part: string) =>
    matches(part, /^\|((?: `\w+`,?)+) \|/gm).flatMap((cell) => matches(cell, /`(\w+)`/g));
  const fieldsOf = (name: string, file: string) =>
    matches(
      new RegExp(`interface ${name}\\b[^{]*\\{([\\s\\S]*?)^\\}`, 'm').exec(text(file))![1]!,
      /^ {2}readonly (\w+)\??:/gm,
    );

  it('has every field of a run, of a result and of a row', () => {
    expect(sorted(listed(section(page, '## The run')))).toEqual(
      sorted(fieldsOf('Results', 'bench/kit/results.ts')),
    );
    const result = listed(section(page, '## A result'));
    expect(result).toEqual(expect.arrayContaining(fieldsOf('TrialBase', 'bench/kit/suite.ts')));
    const row = listed(section(page, '## A row of the summary'));
    expect(sorted([...row, 'curves'])).toEqual(sorted(fieldsOf('SummaryRow', 'bench/kit/summary.ts')));
  });

  it('has every check of the audit', () => {
    const checks = matches(
      /const checks = \{([\s\S]*?)\}/.exec(text('lab/audit/audit.ts'))![1]!,
      /^ {2}(\w+)/gm,
    );
    expect(listed(section(page, '## The audit'))).toEqual(checks);
  });
});
