/** The documents match the repository: links, commands, cited tests, and lists of what exists. */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { checkNames } from '../lab/audit/audit.ts';
import { limits } from '../src/config/limits.ts';
import { openApiDocument } from '../src/http/openapi.ts';
import { SERVICE_ROLE } from '../src/local/postgres-roles.ts';
import { rungs } from '../src/locks/rungs.ts';
import { attemptTally } from '../src/metrics/attempt-tally.ts';
import * as instruments from '../src/metrics/instruments.ts';
import { backgroundHealth } from '../src/metrics/loop-health.ts';

const root = new URL('../', import.meta.url);
const text = (file: string) => readFileSync(new URL(file, root), 'utf8');
const filesBelow = (folder: string, name: RegExp) =>
  readdirSync(new URL(folder, root), { recursive: true, encoding: 'utf8' })
    .map((file) => `${folder}/${file}`)
    .filter((file) => name.test(file));

const documents = ['README', 'CHANGELOG', 'CONTRIBUTING', 'SECURITY']
  .map((name) => `${name}.md`)
  .concat(filesBelow('docs', /\.md$/));
const page = (name: string) => text(`docs/${name}.md`);
/** What the groups of the pattern match. */
const matches = (text: string, pattern: RegExp) =>
  [...text.matchAll(pattern)].map(([, ...groups]) => groups.join(' '));
/** The fenced samples of a language. */
const samples = (page: string, language: string) =>
  matches(page, new RegExp(`^ *\`\`\`${language}\\n([\\s\\S]*?)^ *\`\`\`$`, 'gm'));
const prose = (page: string) => page.replace(/^```[\s\S]*?^```$/gm, '');
/** The part of a page below a heading, up to the next heading of the same level. */
const section = (name: string, heading: string) =>
  page(name)
    .split(`\n${heading}\n`)[1]!
    .split(new RegExp(`^${heading.replace(/[^#].*/, '')} `, 'm'))[0]!;
const block = (name: string, title: string) => page(name).split(`<!-- ${title} -->`)[1]!.split('<!-- /')[0]!;
/** Names in the first cells of a table's rows, without the head's `STRATEGY=`. */
const rows = (part: string) =>
  matches(part, /^\|((?: `[^`=]+`,?)+)/gm).flatMap((cell) => matches(cell, /`([^`]+)`/g));
const escaped = (part: string) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

const { scripts, version } = JSON.parse(text('package.json'));
const example = text('.env.example');
/** Variables of Node and of bench/load/k6. */
const NOT_OURS = ['NODE_EXTRA_CA_CERTS', 'URL', 'STOCK', 'PATH', 'LD_LIBRARY_PATH'];
/** dist/commands/start.js → src/commands/start.ts, dist/commands/bench.js → bench/main.ts */
const sourceOf = (file: string) =>
  file
    .replace('dist/commands/bench.js', 'bench/main.ts')
    .replace('dist/commands/race.js', 'bench/race/main.ts')
    .replace('dist/commands/explore.js', 'lab/explore/main.ts')
    .replace(/^dist(.*)\.js$/, 'src$1.ts');

/** The source that reads the options of a script. */
function programOf(script: string): string {
  const file = /(?:(?:dist|scripts|src)\/[\w/-]+\.[jt]s)(?= |$)(?!.* exec)/.exec(script)?.[0] ?? '';
  const suites =
    sourceOf(file) === 'bench/main.ts' ? ['bench/kit/options.ts', ...filesBelow('bench/suites', /ts$/)] : [];
  return [sourceOf(file), ...suites]
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

/** Titles of tests and of their groups as patterns; values that vitest fills in match anything. */
const titlesIn = (file: string) =>
  [...text(file).matchAll(/[(?:]\s*(['"`])((?:(?!\1)[^\\\n]|\\.)+)\1(?=,|\s*:)/g)].map(([, , title]) => {
    const fixed = title!.split(/%[a-z]|\$\{[^}]*\}/).map(escaped);
    return `^${fixed.join('.+')}$`;
  });

describe.each(documents)('%s', (document) => {
  const page = text(document);
  const urlOf = (target: string) => new URL(target, new URL(document, root));

  it('has no broken link', () => {
    const isBroken = (target: string): boolean => {
      if (/^https?:/.test(target)) return false;
      const [path = '', anchor] = target.split('#');
      const url = urlOf(path || document.replace(/.*\//, ''));
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
    const runs = page.matchAll(/npm run (?:--silent )?([\w:]+)((?: +(?![#|&>])[^\s`"]+)*)/g);
    for (const [, script, args = ''] of runs) {
      expect(scripts).toHaveProperty([script!]);
      for (const option of matches(args, /(?<= )--([a-z][a-z-]+)/g))
        expect(programOf(scripts[script!]), `npm run ${script} -- --${option}`).toMatch(
          new RegExp(`(^|[^\\w-])'?${option}'?[:,]`, 'm'),
        );
    }
    const shell = samples(page, 'sh').join('\n');
    // The files exist, except those that the page tells the reader to write.
    const files = matches(shell, /(?<![\w./-])((?:src|test|bench|lua|scripts|dist|\.ci)\/[\w./-]*\w)/g);
    for (const file of files)
      if (!file.startsWith('bench/results/latest') && !page.includes(`\`${file}\`:\n`))
        expect(existsSync(new URL(sourceOf(file), root)), file).toBe(true);
    const lines = page.split('\n').filter((line) => /(npm (run|start)|docker compose)/.test(line));
    const given = matches([...lines, shell].join('\n'), /(?<![\w-])([A-Z]+(?:_[A-Z]+)*)=/g);
    for (const variable of given)
      if (variable.startsWith('BENCH_')) expect(text('lab/remote.ts')).toContain(`\`${variable}=`);
      else if (!NOT_OURS.includes(variable)) expect(example, variable).toContain(`\n# ${variable}=`);
  });

  it('has samples that parse, and tables whose rows have as many cells as the head', () => {
    for (const json of samples(page, 'json')) expect(() => JSON.parse(json), json).not.toThrow();
    for (const input of samples(page, 'sh')) execFileSync('sh', ['-n'], { input });
    const cells = (row: string): number => row.split(/(?<!\\)\|/).length;
    for (const table of matches(prose(page), /^(\|.*\n\|[-:| ]+\|\n(?:.+\n)*)/gm)) {
      const [head = '', ...others] = table.trim().split('\n');
      const torn = others.filter((row) => cells(row) !== cells(head) && !row.startsWith('<!--'));
      expect(torn, head).toEqual([]);
    }
  });

  it('cites existing tests, each in its file', () => {
    const files = new Map(
      [...page.matchAll(/^\[([a-z-]+)\]: (\S+)$/gm)].map(([, name, target]) => [name!, urlOf(target!)]),
    );
    const cited = [...prose(page).matchAll(/“([^”]+)”(?:\s\[([a-z-]+)\])?/g)];
    const missing = cited.filter(([, title, file = '']) => {
      const url = files.get(file);
      if (url === undefined || !existsSync(url)) return true;
      const titles = titlesIn(url.href.slice(root.href.length));
      return !titles.some((one) => one.length > 12 && new RegExp(one).test(title!.replace(/\s+/g, ' ')));
    });
    expect(missing.map(([citation]) => citation)).toEqual([]);
    expect(cited.map(([, , file]) => file)).toEqual(expect.arrayContaining([...files.keys()]));
  });
});

it('the index links every page', () => {
  const linked = matches(page('README'), /\]\(([\w/-]+\.md)/g).map((target) => `docs/${target}`);
  const pages = filesBelow('docs', /\.md$/).filter((file) => file !== 'docs/README.md');
  expect(pages.filter((one) => !linked.includes(one))).toEqual([]);
});

it('each behavior of the failure model cites a test or the explorer', () => {
  const model = page('reference/failure-model').split('\n');
  const behavior = model.filter((line) => /^\| (?!---|behavior|failure \||what fails|\[)/.test(line));
  expect(behavior.length).toBeGreaterThan(50);
  expect(behavior.filter((row) => !/“|\(\.\.\/explanation\/explorer\.md\)/.test(row))).toEqual([]);
});

/** Names of the implementations in a folder: files that export a description. */
const implementations = (folder: string) =>
  filesBelow(folder, /\.ts$/)
    .filter((file) => /^export const description\b/m.test(text(file)))
    .map((file) => file.replace(/^.*\/|\.ts$/g, ''));
const strategies = implementations('src/strategies');
const locks = [...implementations('src/locks'), ...rungs.map(({ description }) => description.name)];

const created = instruments.createInstruments();
// Metrics that are read at each scrape: their source does not matter here.
for (const [name, measure] of Object.entries(instruments))
  if (name.startsWith('measure')) (measure as (of: typeof created, from: object) => unknown)(created, {});
attemptTally(created.registry, 'lua');
backgroundHealth(created.registry, { failing() {}, recovered() {} });
const metrics: { name: string; labelNames?: readonly string[] }[] = created.registry.getMetricsAsArray();
const isOwn = (name: string) => name.startsWith('stampede_');
const ownMetrics = metrics.map(({ name }) => name).filter(isOwn);
const metricsIn = (file: string) =>
  matches(text(`ops/${file}`), /\b((?:stampede|process|nodejs)_[a-z0-9_]+)/g).map((name) =>
    name.replace(/_(bucket|sum|count)$/, ''),
  );

const limitNames = matches(page('reference/configuration'), /^\| `([a-z][\w.]+)` \| \d/gm);
const limitOf = (name: string) => {
  const value = name.split('.').reduce<unknown>((at, key) => (at as Record<string, unknown>)?.[key], limits);
  return `${name} ${value} ${name.endsWith('Ms') ? ' ms' : name.endsWith('S') ? ' s' : ''}`;
};

const alerts = text('ops/prometheus/alerts.yml');
const alertNames = matches(alerts, /- alert: (\w+)/g);
const alertTests = text('ops/prometheus/alerts.test.yml');
const [tables = '', constraints = ''] = section('reference/data', '## Postgres').split('Constraints that');
const sources = (folder: string) =>
  filesBelow(folder, /^(?!src\/generated|bench\/results).*\.(tsx?|js|lua|sql)$/);
const codeOf = (folder: string) => sources(folder).map(text).join('\n');
const results = (heading: string) => rows(section('reference/results-json', heading));
const fieldsOf = (name: string, file: string) => {
  const [, fields] = new RegExp(`interface ${name}\\b[^{]*\\{([\\s\\S]*?)^\\}`, 'm').exec(text(file))!;
  return matches(fields!, /^ {2}readonly (\w+)\??:/gm);
};

it.each<[what: string, listed: string[], existing: readonly string[]]>([
  ['strategies (written by npm run readme)', rows(block('reference/strategies', 'strategies')), strategies],
  ['strategies, Contention', rows(section('reference/strategies', '## Contention')), strategies],
  ['strategies, explained', matches(page('explanation/strategies'), /^## `(.+)`$/gm), strategies],
  ['locks, capabilities (written by npm run readme)', rows(block('reference/locks', 'capabilities')), locks],
  ['locks, flaws (written by npm run readme)', rows(block('reference/locks', 'flaws')), locks],
  ['locks, Round trips', rows(section('reference/locks', '## Round trips')), locks],
  [
    'configuration, variables and defaults',
    matches(page('reference/configuration'), /^\| `([A-Z_]+)` \| (?:`([^`]*)`|–) \|/gm),
    matches(example, /^# ([A-Z_]+)=(.*)$/gm),
  ],
  [
    'configuration, limits with their units',
    matches(page('reference/configuration'), /^\| `([a-z][\w.]+)` \| (\d+)( m?s)? \|/gm),
    limitNames.map(limitOf),
  ],
  ['metrics', rows(page('reference/metrics')), ownMetrics],
  ['metrics, dashboard', metricsIn('grafana/stampede.json').filter(isOwn), ownMetrics],
  ['alerts', matches(section('how-to/recover', '## When an alert fires'), /^### (\w+)$/gm), alertNames],
  [
    'alerts, runbooks',
    matches(alerts, /- alert: (\w+)[\s\S]*?runbook: (\S+)/g),
    alertNames.map((name) => `${name} docs/how-to/recover.md#${anchorOf(name)}`),
  ],
  ['alerts, tests that fire', matches(alertTests, /- name: (\w+) fires$/gm), alertNames],
  ['alerts, tests that are quiet', matches(alertTests, /- name: (\w+) is quiet$/gm), alertNames],
  ['data, tables', rows(tables), matches(text('prisma/schema.prisma'), /@@map\("(\w+)"\)/g)],
  ['results-json, the run', results('## The run'), fieldsOf('Results', 'bench/kit/results.ts')],
  [
    'results-json, a row',
    [...results('## A row of the summary'), 'curves'],
    fieldsOf('SummaryRow', 'bench/kit/summary.ts'),
  ],
  ['results-json, the audit', results('## The audit'), checkNames],
])('the reference has all that exist, and no other: %s', (_what, listed, existing) => {
  expect(existing.length).toBeGreaterThan(6);
  expect(new Set(listed)).toEqual(new Set(existing));
});

const all = [...strategies, ...locks];
it.each<[what: string, named: string[], existing: readonly string[]]>([
  [
    '.env.example has strategies and locks',
    all,
    all.filter((one) => RegExp(`[ :]${one}[\\s,.]`).test(example)),
  ],
  [
    'files that an attempt passes',
    matches(
      section('explanation/architecture', '## The path of an attempt'),
      /(?<![/\w])((?:\w+\/)+[\w-]+)/g,
    ),
    [...sources('src'), ...sources('lua')].map((file) => file.replace(/^src\/|\.\w+$/g, '')),
  ],
  ['choose-a-strategy', strategies, matches(page('how-to/choose-a-strategy'), /`([\w-]+)`/g)],
  [
    'keys of Redis in the data reference',
    matches(codeOf('src'), /(?:(?:\$\{prefix\}|\}\}):|keyOf\(\w+, ')([a-z]+)/g),
    matches(section('reference/data', '## Redis'), /:([a-z]+)/g),
  ],
  [
    'constraints of the data reference',
    rows(constraints),
    matches(codeOf('prisma/migrations'), /(?:CONSTRAINT(?: TRIGGER)?|INDEX) "?(\w+)/g),
  ],
  ['fields of all results', fieldsOf('TrialBase', 'bench/kit/suite.ts'), results('## A result')],
  [
    'labels of metrics',
    metrics.flatMap(({ name, labelNames }) => (isOwn(name) && labelNames ? `${name} ${labelNames}` : [])),
    matches(page('reference/metrics').replaceAll('`, `', ','), /^\| `(\w+)` \|[^|]*\| `?([^|`]*)`? ?\|/gm),
  ],
  [
    'metrics in documents',
    matches(documents.map(text).join('\n'), /\b(stampede_[a-z_]+)/g),
    [...ownMetrics, SERVICE_ROLE, 'stampede_owner'],
  ],
  [
    'metrics on the dashboard, in alerts and in their tests',
    ['grafana/stampede.json', 'prometheus/alerts.yml', 'prometheus/alerts.test.yml'].flatMap(metricsIn),
    metrics.map(({ name }) => name),
  ],
])('those named exist: %s', (_what, named, existing) => {
  expect(named.length).toBeGreaterThan(4);
  expect(named.filter((name) => !existing.includes(name))).toEqual([]);
});

it('one version: of the package, the chart, the changes, the README, the API and the pages of the packages', () => {
  expect(text('CHANGELOG.md')).toContain(`\n## ${version} – `);
  const chart = text('ops/helm/stampede/Chart.yaml');
  expect(matches(chart, /^(?:version|appVersion): (\S+)$/gm)).toEqual([version, version]);
  expect(text('README.md')).toContain(`Version ${version},`);
  expect(page('how-to/use-the-locks')).toContain(`stampede-locks-${version}.tgz`);
  expect(page('how-to/integrate')).toContain(`stampede-client-${version}.tgz`);
  expect(openApiDocument().info.version).toBe(version);
});
