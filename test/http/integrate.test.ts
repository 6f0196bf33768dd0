/**
 * The clients of docs/how-to/integrate.md, from the page alone in an empty folder, buy with the page's commands, and through a service that
 * answers `busy`, 429, `too-early` and `unknown-outcome`, and whose answers get lost: one order each.
 */
import { execFile, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { rm, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import { type Problem, problems } from '../../src/http/problems.ts';
import { call, createSale } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const root = path.resolve(import.meta.dirname, '../..');
const page = readFileSync(path.join(root, 'docs/how-to/integrate.md'), 'utf8');
/** Files of the page: "… `name`:", and the code. */
const FILES = [...page.matchAll(/`([\w.]+)`:\n\n```\w+\n([\s\S]*?)^```$/gm)];
/** The commands of a part of the page. */
const commandsBelow = (heading: string) =>
  [
    ...page
      .split(`\n## ${heading}\n`)[1]!
      .split('\n## ')[0]!
      .matchAll(/^```sh\n([\s\S]*?)^```$/gm),
  ]
    .map(([, code]) => code!)
    .join('');

const stores = opened(openTestStores);
const service = opened(() => startService(envOf(stores)));
let folder: string;
const fronts: Server[] = [];

/**
 * In front of the service: answers a purchase with these problems, one after the other, and then passes requests on. `cut`: the connection
 * ends within the body of a problem. `proxy`: as something in between answers.
 */
async function front(...steps: (keyof typeof problems | 'lost' | 'cut' | 'proxy')[]): Promise<string> {
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const step = steps.shift();
    const passes = step === undefined || step === 'lost' || step === 'unknown-outcome';
    const init = {
      method: 'POST',
      body: Buffer.concat(chunks),
      headers: { 'Content-Type': 'application/json' },
    };
    const answer = passes ? await fetch(`${service.url}${request.url}`, init) : null;
    if (step === 'lost') return void request.socket.destroy();
    if (step === undefined) {
      response.writeHead(answer!.status, { 'Content-Type': answer!.headers.get('content-type')! });
      return void response.end(await answer!.text());
    }
    if (step === 'cut') {
      response.writeHead(409, { 'Content-Type': 'application/problem+json', 'Content-Length': '100' });
      return void response.write('{"type":"/problems/sold-out"', () => request.socket.destroy());
    }
    if (step === 'proxy') {
      response.writeHead(429, { 'Content-Type': 'text/html', 'Retry-After': new Date().toUTCString() });
      return void response.end('<h1>Too many requests</h1>');
    }
    const { status, title }: Problem = problems[step];
    response.writeHead(status, { 'Content-Type': 'application/problem+json', 'Retry-After': '1' });
    response.end(JSON.stringify({ type: `/problems/${step}`, title, status }));
  });
  fronts.push(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const TYPESCRIPT = `import { buy } from './buy.ts';
const [, , service, saleId, userId, withinS, Authorization] = process.argv as string[];
buy(service!, Number(saleId), { userId: userId! }, Number(withinS) * 1_000, Authorization ? { Authorization } : {}).then(
  (bought) => {
    if (bought.kind === 'order') console.log(bought.orderId);
    else console.log(bought.kind === 'refused' ? bought.problem : 'gave-up', bought.mayExist);
  },
  (error) => console.log('thrown', error.name),
);
`;
const PYTHON = `import sys
from buy import Refused, buy
service, sale_id, user_id, within_s, *authorization = sys.argv[1:]
try:
    headers = {'Authorization': one for one in authorization}
    print(buy(service, sale_id, {'userId': user_id}, int(within_s), headers)['orderId'])
except Refused as refused:
    print(refused.args[0], str(refused.args[1]).lower())
except TimeoutError as late:
    print('gave-up', str(late.args[0]).lower())
except Exception as error:
    print('thrown', type(error).__name__)
`;

const named = (text: string) => text.replaceAll('http://127.0.0.1:3000', service.url);

/** Runs commands in the folder. @returns what they print on standard output @throws with what they printed, if one fails */
async function follow(commands: string): Promise<string> {
  const { PATH, HOME } = process.env;
  const env = { PATH, HOME, npm_config_prefer_offline: 'true' };
  const done = promisify(execFile)('/bin/sh', ['-ec', named(commands)], { cwd: folder, env });
  const { stdout } = await done.catch(({ stdout, stderr }) => {
    throw new Error(`${stdout}${stderr}`);
  });
  return stdout;
}

beforeAll(async () => {
  folder = await temporaryFolder('stampede-test-integrate-');
  for (const [, name, code] of FILES) await writeFile(path.join(folder, name!), named(code!));
  await writeFile(path.join(folder, 'caller.ts'), TYPESCRIPT);
  await writeFile(path.join(folder, 'caller.py'), PYTHON);
  await createSale(service.url, 5); // sale 1, which the page buys from
});
afterAll(async () => {
  for (const server of fronts) server.close();
  await rm(folder, { recursive: true, force: true });
});

describe('the files and commands of the page, in an empty folder', () => {
  it.each([
    ['In TypeScript', /^\{\s+kind: 'order',\s+orderId: '[\w-]{36}',\s+isRepeat: false\s+\}\n$/],
    ['In Python', /^\{'orderId': '[\w-]{36}', .*'userId': 'ben', 'status': 'pending'/],
    ['A client for all routes', /200 \{\s+id: 1,[\s\S]*stock: 5,\s+sold: [12],/],
  ])('%s', async (heading, printed) => {
    expect(await follow(commandsBelow(heading))).toMatch(printed);
  });
});

const CLIENTS = [
  ['TypeScript', process.execPath, ['--import', import.meta.resolve('tsx'), 'caller.ts']],
  ['Python', 'python3', ['caller.py']],
] as const;

describe.concurrent.each(CLIENTS)('in %s', (name, program, args) => {
  const isMissing = spawnSync(program, ['--version']).status !== 0;
  const buy = async (url: string, saleId: number, userId: string, withinS: number, token = '') => {
    const all = [...args, url, String(saleId), userId, String(withinS), token];
    return (await promisify(execFile)(program, all, { cwd: folder })).stdout.trim();
  };

  it.skipIf(isMissing)('buys one order through every answer that asks for a repeat', async () => {
    const { id } = await createSale(service.url, 5);
    const url = await front(
      'busy',
      'too-many-requests',
      'lost',
      'cut',
      'proxy',
      'too-early',
      'unknown-outcome',
      'busy',
    );
    const orderId = await buy(url, id, 'ann', 600);
    const { body } = await call(`${service.url}/sales/${id}/orders?userId=ann`);
    expect(body).toMatchObject({ orderId, status: 'pending' });
    expect((await call(`${service.url}/sales/${id}`)).body).toMatchObject({ sold: 1 });
  });

  it.skipIf(isMissing)(
    'ends with a refusal at once, and without an answer when its time is over',
    async () => {
      const { id } = await createSale(service.url, 1);
      await buy(service.url, id, `first of ${name}`.replaceAll(' ', '.'), 600);
      expect(await buy(await front(), id, 'ben', 600)).toBe('sold-out false');
      expect(await buy(await front('lost', 'invalid-ticket'), id, 'dan', 600)).toBe('invalid-ticket true');
      expect(await buy(await front('lost', 'lost'), id, 'eve', 0)).toBe('gave-up true');
      expect(await buy(await front('busy'), id, 'fay', 0)).toBe('gave-up false');
    },
  );
});
