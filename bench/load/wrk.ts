/**
 * wrk as the generator: one thread, and a script that builds each request from two constant parts and a number. wrk knows
 * whole seconds and no number of requests, so it is started for longer and interrupted, after which it reports what it
 * measured by its own clock.
 *
 * wrk's script does not see which connection an answer came from, but an accepted answer names its customer. A refused one
 * does not: such attempts stay in the history as unknown, which no audit takes for an order, and wrk counts them.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Layout, pinned } from '../kit/pin.ts';
import * as rate from './rate.ts';
import { readLines } from './recorder.ts';
import { runTool } from './tool.ts';

interface Wrk {
  readonly program: string;
  readonly name: string;
  readonly layout: Pick<Layout, 'generator'>;
  /** Scripts and lines are written here. */
  readonly folder: string;
}

/** The script reports its count after so many attempts, or after a fiftieth of all: seldom enough to cost nothing. */
const tellEvery = 20_000;
const dayMs = 86_400_000;

export function wrkGenerator({ program, name, layout, folder }: Wrk): rate.Generator {
  return {
    name,
    async run(load) {
      const { signal, record, attempts, durationMs, connections, url, onSent } = load;
      signal.throwIfAborted();
      const [script, lines] = [join(folder, 'load.lua'), join(folder, 'lines.txt')];
      await writeFile(script, wrkScript(load, record ? lines : null));
      const withinMs = durationMs === null ? null : durationMs + rate.resultWithinMs;
      const shape = ['-t', '1', '-c', `${connections}`, '-d', `${Math.ceil((withinMs ?? dayMs) / 1_000)}s`];
      const command = [program, ...shape, '--timeout', `${rate.answerTimeoutMs / 1_000}s`, '-s', script, url];
      const found: NonNullable<ReturnType<typeof parseWrk>>[] = [];
      const { how, cpuS, tail } = await runTool({
        command: pinned(command, layout.generator),
        signal,
        durationMs,
        withinMs,
        onLine(line, end) {
          found.push(...[parseWrk(line) ?? []].flat());
          const sent = Number(/^sent (\d+)$/.exec(line)?.[1] ?? 0);
          if (sent > 0) onSent?.(sent);
          if (attempts !== null && sent >= attempts) end();
        },
      });
      signal.throwIfAborted();
      const [numbers] = found;
      if (numbers === undefined) throw new Error(`wrk reported no result: it ${how}\n${tail.join('\n')}`);
      const recorded = await readLines(record ? [lines] : [], rate.attemptOf(load));
      return { ...numbers, cpuS, ...recorded };
    },
  };
}

/** The parts of a request before the customer's number and after it. */
export function requestParts(url: string, saleId: number, prefix: string): readonly [string, string] {
  const body = [`{"userId":"${prefix}`, '"}'] as const;
  const length = body[0].length + String(rate.firstCustomer).length + body[1].length;
  const head = [
    `POST /sales/${saleId}/orders HTTP/1.1`,
    `Host: ${new URL(url).host}`,
    'Content-Type: application/json',
    `Content-Length: ${length}`,
  ];
  return [`${head.join('\r\n')}\r\n\r\n${body[0]}`, body[1]];
}

/** Requests, and the line that `parseWrk` reads. @param lines a file for `readLines`; null: attempts are not recorded */
export function wrkScript({ url, saleIds, prefix, attempts }: rate.RateLoad, lines: string | null): string {
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
  return heads[sent % ${heads.length} + 1] .. (${rate.firstCustomer} + sent) .. tail
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
  -- The last one: half an answer may stand before it.
  local order, customer = body:match('.*"orderId":"([^"]+)".-"userId":"%a+(%d+)"')
  if order == nil then return end
  local outcome = status == 200 and "replayed" or "accepted"
  local n = string.format("%.0f", tonumber(customer) - ${rate.firstCustomer})
  lines:write(n, " ", now(), " ", status, " ", outcome, " ", order, "\\n")
end`;

/** A Lua string; requests and paths need no other escapes than those of JSON. */
const quoted = (text: string): string => JSON.stringify(text);

const measured =
  /^measured duration_us=(\d+) answers=(\d+) refused=(\d+) unanswered=(\d+) p50_us=(\d+) p99_us=(\d+)$/;

/** Reads the script's last line; null: it is another line. */
export function parseWrk(line: string): Omit<rate.RateNumbers, 'cpuS'> | null {
  const values = measured.exec(line)?.slice(1).map(Number);
  if (values === undefined) return null;
  const [durationUs = 0, answers = 0, refused = 0, unanswered = 0, p50Us = 0, p99Us = 0] = values;
  const latencyMs = answers === 0 ? null : { p50: p50Us / 1_000, p99: p99Us / 1_000 };
  return { durationMs: durationUs / 1_000, answers, refused, unanswered, latencyMs };
}
