/**
 * wrk as the generator: one thread, and a script that puts each request together from two constant parts and a number.
 * wrk knows whole seconds and no number of requests, so it is started for longer and ended with SIGINT, after which it
 * reports what it measured; its own clock says how long that was.
 *
 * A recorded load writes lines.ts's lines. wrk's script does not see which connection an answer came from, but an accepted
 * answer names its customer. A refused answer does not: such attempts stay in the history as unknown, which no audit
 * mistakes for an order, and are counted by wrk as refused.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { cpuSeconds } from '../kit/cpu.ts';
import { type Layout, pinned } from '../kit/pin.ts';
import { startTool } from '../kit/processes.ts';
import { readLines } from './lines.ts';
import {
  answerTimeoutMs,
  customerOf,
  firstCustomer,
  type Generator,
  type RateLoad,
  type RateResult,
  requestParts,
} from './rate.ts';

/** The script reports its count after so many attempts, seldom enough to cost nothing, or after a fiftieth of all. */
const tellEvery = 20_000;
/** wrk ends by itself after this, in seconds. */
const atMostS = 24 * 3_600;
/** After its end, wrk may take so long to report its result. */
const resultMs = 30_000;

interface Wrk {
  readonly program: string;
  readonly name: string;
  readonly layout: Pick<Layout, 'generator'>;
  /** Scripts and lines are written here. */
  readonly folder: string;
}

export function wrkGenerator({ program, name, layout, folder }: Wrk): Generator {
  return {
    name,
    async run(load) {
      load.signal.throwIfAborted();
      const [script, lines] = [join(folder, 'load.lua'), join(folder, 'lines.txt')];
      await writeFile(script, wrkScript(load, load.record ? lines : null));
      const lasts = load.durationMs === null ? atMostS : Math.ceil(load.durationMs / 1_000) + 60;
      const options = ['-t', '1', '-c', String(load.connections), '-d', `${lasts}s`];
      const timeout = ['--timeout', `${answerTimeoutMs / 1_000}s`];
      const command = [program, ...options, ...timeout, '-s', script, load.url];
      const numbers = await follow(pinned(command, layout.generator), load);
      if (!load.record) return { ...numbers, history: [], strangeAnswers: [] };
      const { saleIds, prefix } = load;
      return {
        ...numbers,
        ...(await readLines([lines], {
          user: (n) => customerOf(prefix, n),
          sale: (n) => saleIds[n % saleIds.length] ?? 0,
        })),
      };
    },
  };
}

/** The script: requests, and the line that `parseWrk` reads. Pure. @param lines where attempts are recorded; null: nowhere */
export function wrkScript({ url, saleIds, prefix, attempts }: RateLoad, lines: string | null): string {
  const parts = saleIds.map((saleId) => requestParts(url, saleId, prefix));
  const heads = parts.map(([head]) => quoted(head));
  const every = attempts === null ? tellEvery : Math.max(1, Math.min(tellEvery, Math.floor(attempts / 50)));
  return `local heads = { ${heads.join(', ')} }
local tail = ${quoted(parts[0]?.[1] ?? '')}
local sent = 0
${lines === null ? 'local function begun() end' : recording(lines)}
function request()
  sent = sent + 1
  if sent % ${every} == 0 then
    io.write("sent ", sent, "\\n")
    io.flush()
  end
  begun(sent)
  return heads[sent % ${heads.length} + 1] .. (${firstCustomer} + sent) .. tail
end
function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    "measured duration_us=%.0f answers=%.0f refused=%.0f unanswered=%.0f p50_us=%.0f p99_us=%.0f\\n",
    summary.duration, summary.requests, errors.status,
    errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99)))
end
`;
}

/** wrk calls \`request\` once before the load, to look at the request: that one is not an attempt. */
const recording = (path: string): string => `local ffi = require("ffi")
ffi.cdef("typedef struct { long s; long ns; } stampede_time; int clock_gettime(int clock, stampede_time *time);")
local time = ffi.new("stampede_time")
local function now()
  ffi.C.clock_gettime(1, time)
  return string.format("%.0f", tonumber(time.s) * 1e6 + tonumber(time.ns) / 1e3)
end
local lines = io.open(${quoted(path)}, "w")
lines:setvbuf("full", 65536)
local function begun(n)
  if n > 1 then lines:write(n, " ", now(), "\\n") end
end
function response(status, headers, body)
  if status >= 300 then return end
  local order, customer = body:match('.*"orderId":"([^"]+)".-"userId":"%a+(%d+)"') -- the last: half an answer may stand before it
  if order == nil then return end
  local outcome = status == 200 and "replayed" or "accepted"
  lines:write(string.format("%.0f", tonumber(customer) - ${firstCustomer}), " ", now(), " ", status, " ", outcome, " ", order, "\\n")
end`;

/** A Lua string; requests and paths need no other escapes. */
function quoted(text: string): string {
  const escaped = text.replaceAll('\\', '\\\\').replaceAll('"', '\\"');
  return `"${escaped.replaceAll('\r', '\\r').replaceAll('\n', '\\n')}"`;
}

type Numbers = Omit<RateResult, 'history' | 'strangeAnswers'>;
const measured =
  /^measured duration_us=(\d+) answers=(\d+) refused=(\d+) unanswered=(\d+) p50_us=(\d+) p99_us=(\d+)$/;

/** Reads the script's last line; null: it is another line. */
export function parseWrk(line: string): Omit<Numbers, 'cpuS'> | null {
  const values = measured.exec(line)?.slice(1).map(Number);
  if (values === undefined) return null;
  const [durationUs = 0, answers = 0, refused = 0, unanswered = 0, p50Us = 0, p99Us = 0] = values;
  const latencyMs = answers === 0 ? null : { p50: p50Us / 1_000, p99: p99Us / 1_000 };
  return { durationMs: durationUs / 1_000, answers, refused, unanswered, latencyMs };
}

/** Runs wrk until the load's end, and reads its result. */
async function follow(command: readonly string[], load: RateLoad): Promise<Numbers> {
  let numbers: Omit<Numbers, 'cpuS'> | null = null;
  let cpuS: number | null = null;
  let ending = false;
  const end = (): void => {
    if (ending) return;
    ending = true;
    cpuS = cpuSeconds(wrk.pid); // /proc forgets a process that has ended
    wrk.signal('SIGINT');
  };
  const onLine = (line: string): void => {
    numbers ??= parseWrk(line);
    const sent = /^sent (\d+)$/.exec(line)?.[1];
    if (sent === undefined) return;
    load.onSent?.(Number(sent));
    if (load.attempts !== null && Number(sent) >= load.attempts) end();
  };
  await using wrk = startTool({ command, onLine });
  const abort = (): void => wrk.signal('SIGKILL');
  const { durationMs, signal } = load;
  const timers =
    durationMs === null ? [] : [setTimeout(end, durationMs), setTimeout(abort, durationMs + resultMs)];
  signal.addEventListener('abort', abort, { once: true });
  if (signal.aborted) abort();
  try {
    const how = await wrk.ended;
    signal.throwIfAborted();
    if (numbers === null) throw new Error(`wrk reported no result: it ${how}\n${wrk.tail().join('\n')}`);
    return { ...(numbers as Omit<Numbers, 'cpuS'>), cpuS };
  } finally {
    for (const timer of timers) clearTimeout(timer);
    signal.removeEventListener('abort', abort);
  }
}
