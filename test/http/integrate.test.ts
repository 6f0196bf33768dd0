/**
 * The clients of docs/how-to/integrate.md, built from the page alone, buy through a service that answers `busy`, 429, `too-early` and
 * `unknown-outcome`, and whose answers get lost: one order each.
 */
import { execFile, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { rm, symlink, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { promisify } from 'node:util';
import { generateSource } from 'oazapfts';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { temporaryFolder } from '../../lab/kit/temporary-folder.ts';
import { type Problem, problems } from '../../src/http/problems.ts';
import { call, createSale } from '../support/client.ts';
import { opened } from '../support/opened.ts';
import { startService } from '../support/service.ts';
import { envOf, openTestStores } from '../support/stores.ts';

const root = path.resolve(import.meta.dirname, '../..');
const page = readFileSync(path.join(root, 'docs/how-to/integrate.md'), 'utf8');
const codeOf = (file: string) =>
  new RegExp(`\`${file}\`:\n\n\`\`\`\\w+\n([\\s\\S]*?)^\`\`\`$`, 'm').exec(page)![1]!;

const stores = opened(openTestStores);
const service = opened(() => startService(envOf(stores)));
let folder: string;
const fronts: Server[] = [];

/**
 * In front of the service: answers a purchase with these problems, one after the other, and then passes requests on. `proxy`: as something
 * in between answers.
 */
async function front(...steps: (keyof typeof problems | 'lost' | 'proxy')[]): Promise<string> {
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
import { defaults } from './stampede.ts';
defaults.baseUrl = process.argv[2]!;
const bought = await buy(Number(process.argv[3]), { userId: process.argv[4]! }, Number(process.argv[5]) * 1_000);
console.log(bought.kind === 'order' ? bought.orderId : (bought.kind === 'refused' ? bought.problem + ' ' : '') + bought.mayExist);
`;
const PYTHON = `import sys
from buy import Refused, buy
try:
    print(buy(sys.argv[1], sys.argv[2], {'userId': sys.argv[3]}, int(sys.argv[4]))['orderId'])
except Refused as refused:
    print(refused.args[0], str(refused.args[1]).lower())
except TimeoutError as late:
    print(str(late.args[0]).lower())
`;

beforeAll(async () => {
  folder = await temporaryFolder('stampede-test-integrate-');
  const files = {
    'package.json': '{ "type": "module" }',
    'stampede.ts': await generateSource(`${service.url}/openapi.json`),
    'buy.ts': codeOf('buy.ts'),
    'caller.ts': TYPESCRIPT,
    'buy.py': codeOf('buy.py'),
    'caller.py': PYTHON,
  };
  for (const [name, text] of Object.entries(files)) await writeFile(path.join(folder, name), text);
  await symlink(path.join(root, 'node_modules'), path.join(folder, 'node_modules'));
});
afterAll(async () => {
  for (const server of fronts) server.close();
  await rm(folder, { recursive: true, force: true });
});

const CLIENTS = [
  ['TypeScript', process.execPath, ['--import', 'tsx', 'caller.ts']],
  ['Python', 'python3', ['caller.py']],
] as const;

describe.concurrent.each(CLIENTS)('in %s', (name, program, args) => {
  const isMissing = spawnSync(program, ['--version']).status !== 0;
  const buy = async (url: string, saleId: number, userId: string, withinS: number) => {
    const all = [...args, url, String(saleId), userId, String(withinS)];
    return (await promisify(execFile)(program, all, { cwd: folder })).stdout.trim();
  };

  it.skipIf(isMissing)('buys one order through every answer that asks for a repeat', async () => {
    const { id } = await createSale(service.url, 5);
    const url = await front(
      'busy',
      'too-many-requests',
      'lost',
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
      expect(await buy(await front('lost', 'lost'), id, 'eve', 0)).toBe('true');
      expect(await buy(await front('busy'), id, 'fay', 0)).toBe('false');
    },
  );
});
