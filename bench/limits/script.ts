/** The cells of the engine: how many deductions a second Redis carries out, counted by what it holds afterwards. */
import { readFile } from 'node:fs/promises';
import { openRedis, type RedisStore } from '../../src/store/redis/connection.ts';
import { number } from '../audit/check.ts';
import { findProgram, type Started, startProgram, startTool } from '../processes.ts';
import { countBetween, databaseName, type Measured, type Measuring, type Turn } from './measure.ts';
import { pin, pinned } from './pin.ts';
import { keysOf } from './sale-keys.ts';

const saleId = 1;
const epoch = 1;
/** More than any machine sells in a cell. */
const units = 2_000_000_000;

/** What a process of calls is told. */
export interface CallsOrder {
  readonly redisUrl: string;
  readonly saleId: number;
  readonly epoch: number;
  /** Attempts in one call; 1: the script for one. */
  readonly batch: number;
  /** Calls under way at once. */
  readonly inFlight: number;
}

/** Calls under way at once, each for one deduction: redis-benchmark's -P, and ioredis where that is missing. */
const depth = 16;
const batched = { batch: 256, inFlight: 2 } as const;

export async function measureScript(isBatched: boolean, turn: Turn, measuring: Measuring): Promise<Measured> {
  measuring.onStep('starting');
  await using stores = await measuring.stores.fresh(databaseName(turn));
  const { redisUrl } = stores;
  const store = await openRedis(redisUrl, () => {}); // the call that is under way fails as well
  try {
    await openSale(store);
    const { keys, count } = countOf(store);
    const through = async (caller: Caller): Promise<Rate> => {
      await using used = caller;
      return { how: used.how, ...(await countBetween(count, used.died, measuring)) };
    };
    const rate = isBatched
      ? await through(await calls(redisUrl, batched, measuring))
      : await rateOfOne(store, redisUrl, measuring, through);
    const findings = await disagreements(store, keys);
    return { ...rate, others: 0, unanswered: 0, latencyMs: null, findings };
  } finally {
    await store.close();
  }
}

async function openSale({ scripts }: RedisStore): Promise<void> {
  const state = {
    remaining: units,
    segments: 0,
    startsMs: null,
    endsMs: null,
    epoch,
    restocks: [],
    committed: [],
  };
  await scripts.load(keysOf(saleId), `${keysOf(saleId).buyers}:none`, state);
}

function countOf({ redis }: RedisStore) {
  const keys = keysOf(saleId);
  const count = async (): Promise<number> => units - Number(await redis.hget(keys.state, 'remaining'));
  return { keys, count };
}

/** @returns the hash under which Redis knows lua/sale/reserve.lua */
async function loadedScript({ redis }: RedisStore): Promise<string> {
  const text = await readFile(new URL('../../lua/sale/reserve.lua', import.meta.url), 'utf8');
  return String(await redis.script('LOAD', text));
}

/** What calls the script, until it is disposed of. */
type Caller = Started & { readonly how: string };
type Rate = Pick<Measured, 'how' | 'counted' | 'measuredMs' | 'processors'>;

/** The script for one: from redis-benchmark, or where that is missing from ioredis, which is then measured alone as well. */
async function rateOfOne(
  store: RedisStore,
  redisUrl: string,
  measuring: Measuring,
  through: (caller: Caller) => Promise<Rate>,
): Promise<Rate> {
  const program = findProgram('redis-benchmark');
  if (program !== null) {
    return through(benchmarked(program, redisUrl, measuring, await loadedScript(store)));
  }
  const alone = await through(await calls(redisUrl, { batch: 1, inFlight: 1 }, measuring));
  const rate = await through(await calls(redisUrl, { batch: 1, inFlight: depth }, measuring));
  const perSecond = number(Math.round(alone.counted / (alone.measuredMs / 1_000)));
  return { ...rate, how: `${rate.how}; with one call at a time ${perSecond} deductions/s` };
}

/** redis-benchmark on the script for one. */
function benchmarked(
  program: string,
  redisUrl: string,
  { options, layout }: Measuring,
  hash: string,
): Caller {
  const { hostname, port, password } = new URL(redisUrl);
  const keys = keysOf(saleId);
  const server = ['-h', hostname, '-p', port];
  const secret = password === '' ? [] : ['-a', decodeURIComponent(password)];
  const shape = `-c ${options.connections} -P ${depth}`;
  const endless = '-q -n 2000000000 -r 2000000000';
  // Random numbers have twelve digits: a customer is as long as those of the load, an order as long as a UUID.
  const call = ['EVALSHA', hash, '3', keys.state, keys.buyers, keys.reservations];
  const deadlineMs = String(Date.now() + 24 * 3600 * 1000); // longer than any load
  const attempt = ['b__rand_int__', '00000000-0000-7000-8000-__rand_int__', String(epoch), deadlineMs];
  const load = `${shape} ${endless}`.split(' ');
  const command = pinned([program, ...server, ...secret, ...load, ...call, ...attempt], layout.server);
  return { ...startTool({ command }), how: `redis-benchmark ${shape}` };
}

/** ioredis on the script for one, or for many. */
async function calls(
  redisUrl: string,
  shape: Pick<CallsOrder, 'batch' | 'inFlight'>,
  { layout }: Measuring,
): Promise<Caller> {
  const program = startProgram<CallsOrder, never>('limits/drivers/calls.ts');
  await pin(program.pid, layout.server);
  program.tell({ redisUrl, saleId, epoch, ...shape });
  const { batch, inFlight } = shape;
  const what = batch === 1 ? `${inFlight} calls under way` : `${inFlight} calls of ${batch} under way`;
  return { ...program, how: `ioredis, one connection, ${what}` };
}

/** What is taken must be who has bought, and what is recorded. */
async function disagreements({ redis }: RedisStore, keys: ReturnType<typeof keysOf>): Promise<string[]> {
  // At one instant: calls that were sent may still be carried out.
  const replies = await redis
    .multi()
    .hget(keys.state, 'remaining')
    .hlen(keys.buyers)
    .zcard(keys.reservations)
    .exec();
  const [remaining, buyers, recorded] = (replies ?? []).map(([, reply]) => Number(reply));
  if (remaining === undefined || buyers === undefined || recorded === undefined) {
    return ['Redis did not tell what it holds'];
  }
  const taken = units - remaining;
  if (taken === buyers && taken === recorded) return [];
  return [
    `${number(taken)} units taken, ${number(buyers)} buyers, ${number(recorded)} reservations recorded`,
  ];
}
