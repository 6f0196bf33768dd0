/** Assigns the time of a CPU profile to the code on the stack. Pure. */

/** What is read of a profile of V8. */
export interface CpuProfile {
  readonly startTime: number;
  readonly endTime: number;
  readonly nodes: readonly {
    readonly id: number;
    readonly callFrame: { readonly functionName: string; readonly url: string };
    readonly children?: readonly number[];
  }[];
  readonly samples: readonly number[];
  /** µs since the sample before. */
  readonly timeDeltas: readonly number[];
}

export interface Share {
  readonly owner: string;
  /** Of the time in which the process was not idle, 0 to 1. */
  readonly share: number;
}

const idle = '(idle)';
const garbage = '(garbage collector)';

/** Owners of frames; the innermost owner of a stack has the time, with what it calls of Node and V8. */
const owners: readonly (readonly [owner: string, url: RegExp])[] = [
  ['Postgres client (pg)', /node_modules\/pg/],
  ['Redis client (ioredis)', /node_modules\/ioredis/],
  ['order ids (uuidv7)', /node_modules\/uuidv7/],
  ['the purchase route', /\/dist\/http\//],
  ['deciding and committing', /\/dist\//],
];
const http = 'node:http and its sockets';
const httpUrl = /^node:(_http|http|net|internal\/(stream|net))/;
const other = 'Node and V8 otherwise';

/** @param from the share of the profile's time that is left out at its beginning, 0 to 1 */
export function shareOfTime(profile: CpuProfile, from: number): Share[] {
  const owner = ownersOf(profile);
  const spent = new Map<string, number>();
  const fromUs = (profile.endTime - profile.startTime) * from;
  let atUs = 0;
  for (const [n, id] of profile.samples.entries()) {
    const deltaUs = profile.timeDeltas[n] ?? 0;
    atUs += deltaUs;
    const name = atUs < fromUs ? null : owner(id);
    if (name !== null) spent.set(name, (spent.get(name) ?? 0) + deltaUs);
  }
  const total = [...spent.values()].reduce((sum, us) => sum + us, 0);
  return [...spent]
    .map(([owner, us]) => ({ owner, share: Math.round((us / total) * 1_000) / 1_000 }))
    .sort((a, b) => b.share - a.share);
}

/** @returns the owner of a sample; null: the process was idle */
function ownersOf({ nodes }: CpuProfile): (id: number) => string | null {
  const frames = new Map(nodes.map(({ id, callFrame }) => [id, callFrame]));
  const parents = new Map(nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id])));
  const known = new Map<number, string | null>();
  const urlsOutwards = function* (id: number): Generator<string> {
    for (let at: number | undefined = id; at !== undefined; at = parents.get(at))
      yield frames.get(at)?.url ?? '';
  };
  const find = (id: number): string | null => {
    const { functionName = '', url = '' } = frames.get(id) ?? {};
    if (functionName === idle) return null;
    if (functionName === garbage) return 'garbage collection';
    const stack = [...urlsOutwards(id)];
    const own = stack.map((one) => owners.find(([, pattern]) => pattern.test(one))?.[0]).find((name) => name);
    // Reading a request and writing an answer is work of node:http, whatever calls it.
    const inner = url === '' || url.startsWith('node:');
    if (own === 'the purchase route' && inner) return http;
    return own ?? (stack.some((one) => httpUrl.test(one)) ? http : other);
  };
  return (id) => {
    const found = known.get(id) ?? find(id);
    known.set(id, found);
    return found;
  };
}
