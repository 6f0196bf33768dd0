/** Where the time of an attempt goes: V8's sampling profile of the service, by the owner of the code on the stack. */
import { existsSync, readFileSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { SourceMap } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The used fields of a V8 profile. */
export interface CpuProfile {
  readonly nodes: readonly {
    readonly id: number;
    readonly callFrame: {
      readonly functionName: string;
      readonly url: string;
      /** Both from 0. */
      readonly lineNumber: number;
      readonly columnNumber: number;
    };
    readonly children?: readonly number[];
  }[];
  readonly samples: readonly number[];
  /** µs since the previous sample. */
  readonly timeDeltas: readonly number[];
}

/** A share of the time in which the process was not idle, 0 to 1. */
export type Share = readonly [owner: string, share: number];

/** Samples before this share of all are ignored: start-up, and code that is not compiled yet. */
const from = 0.5;
const route = 'the purchase route';
/** The innermost owner on a stack gets the time, including its calls to Node and V8. */
const owners: readonly (readonly [owner: string, url: RegExp])[] = [
  ['Postgres client (pg)', /node_modules\/pg/],
  ['Redis client (ioredis)', /node_modules\/ioredis/],
  ['order ids (uuidv7)', /node_modules\/uuidv7/],
  [route, /\/src\/http\//],
  ['deciding and committing', /\/src\//],
];
const http = 'node:http and its sockets';
const httpUrl = /^node:(_http|http|net|internal\/(stream|net))/;

export const profileFlags = (folder: string): string[] => ['--cpu-prof', `--cpu-prof-dir=${folder}`];

/** Reads the largest profile in the folder; others are from helper threads. */
export async function sharesIn(folder: string): Promise<Share[]> {
  const files = await readdir(folder);
  const texts = await Promise.all(files.map((file) => readFile(join(folder, file), 'utf8')));
  const [largest] = texts.sort((a, b) => b.length - a.length);
  return largest === undefined ? [] : sharesOf(withSources(JSON.parse(largest) as CpuProfile));
}

/** Gives each function of a bundle the URL of its source. */
function withSources(profile: CpuProfile): CpuProfile {
  const maps = new Map<string, SourceMap | null>();
  const mapOf = (url: string): SourceMap | null => {
    const file = url.startsWith('file:') ? `${fileURLToPath(url)}.map` : '';
    if (!maps.has(file))
      maps.set(file, existsSync(file) ? new SourceMap(JSON.parse(readFileSync(file, 'utf8'))) : null);
    return maps.get(file)!;
  };
  const nodes = profile.nodes.map(({ callFrame, ...node }) => {
    const { url, lineNumber, columnNumber } = callFrame;
    const entry = mapOf(url)?.findEntry(lineNumber, columnNumber);
    const source = entry !== undefined && 'originalSource' in entry ? entry.originalSource : url;
    return { ...node, callFrame: { ...callFrame, url: source } };
  });
  return { ...profile, nodes };
}

/** Largest first. */
export function sharesOf({ nodes, samples, timeDeltas }: CpuProfile): Share[] {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const parents = new Map(nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id])));
  const ownerOf = (id: number): string | null => {
    const name = byId.get(id)?.callFrame.functionName;
    if (name === '(idle)') return null;
    if (name === '(garbage collector)') return 'garbage collection';
    const stack: string[] = [];
    for (let at: number | undefined = id; at !== undefined; at = parents.get(at))
      stack.push(byId.get(at)?.callFrame.url ?? '');
    const owner = stack.flatMap((url) => owners.find(([, pattern]) => pattern.test(url))?.[0] ?? [])[0];
    // Reading a request and writing an answer is work of node:http, whoever calls it.
    if (owner === route && /^(node:|$)/.test(stack[0] ?? '')) return http;
    return owner ?? (stack.some((url) => httpUrl.test(url)) ? http : 'Node and V8 otherwise');
  };
  const known = new Map(nodes.map(({ id }) => [id, ownerOf(id)]));
  const spent = new Map<string, number>();
  for (const [n, id] of samples.entries()) {
    const owner = n < from * samples.length ? null : known.get(id);
    if (owner != null) spent.set(owner, (spent.get(owner) ?? 0) + (timeDeltas[n] ?? 0));
  }
  const total = [...spent.values()].reduce((sum, us) => sum + us, 0);
  return [...spent].map(([owner, us]): Share => [owner, us / total]).sort((a, b) => b[1] - a[1]);
}
