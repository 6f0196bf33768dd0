/**
 * wrk as the generator: one thread, and a script that builds each request from two constant parts and a number. wrk takes
 * whole seconds and no number of requests, so it is started for longer and interrupted; it then reports what it measured
 * by its own clock.
 *
 * wrk's script does not see which connection an answer came from, but an accepted answer names its customer. A refused one
 * does not: such attempts stay in the history as unknown, which no audit takes for an order, and wrk counts them, and how many
 * of them were not `busy`.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type Layout, pinned } from '../kit/pin.ts';
import { oneUnit, purchaseBody, type Quantities } from './purchase.ts';
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

/** The script reports its count after this many attempts, or a fiftieth of all: rarely enough to cost nothing. */
const tellEvery = 20_000;
const dayMs = 86_400_000;

export function wrkGenerator({ program, name, layout, folder }: Wrk): rate.Generator {
  return {
    name,
    async run(load) {
      const { signal, record, attempts, durationMs, connections, url, prefix, onSent } = load;
      signal.throwIfAborted();
      // Loads at the same time have different prefixes.
      const [script, lines] = [join(folder, `load-${prefix}.lua`), join(folder, `lines-${prefix}.txt`)];
      await writeFile(script, wrkScript(load, record ? lines : null));
      const withinMs = durationMs === null ? null : durationMs + rate.resultWithinMs;
      const shape = ['-t', '1', '-c', `${connections}`, '-d', `${Math.ceil((withinMs ?? dayMs) / 1_000)}s`];
      const command = [program, ...shape, '--timeout', `${rate.answerTimeoutMs / 1_000}s`, '-s', script, url];
      let numbers: Omit<rate.RateNumbers, 'cpuS'> | undefined;
      const { how, cpuS, tail } = await runTool({
        command: pinned(command, layout.generator),
        signal,
        durationMs,
        withinMs,
        onLine(line, end) {
          if (!line.startsWith('{')) return; // wrk's own report
          const { sent, ...rest } = JSON.parse(line) as { readonly sent?: number } & rate.RateNumbers;
          if (sent === undefined) numbers = rest;
          else onSent?.(sent);
          if (attempts !== null && sent !== undefined && sent >= attempts) end();
        },
      });
      signal.throwIfAborted();
      if (numbers === undefined) throw new Error(`wrk reported no result: it ${how}\n${tail.join('\n')}`);
      const latencyMs = numbers.answers === 0 ? null : numbers.latencyMs;
      const recorded = await readLines(record ? [lines] : [], rate.attemptOf(load));
      return { ...numbers, latencyMs, cpuS, ...recorded };
    },
  };
}

/** A request up to the customer's number, or up to the ticket, which precedes `afterTicket`. */
export function requestHead({ url, prefix, tickets, quantities = oneUnit }: Shape, saleId: number): string {
  const body = `{"userId":"${prefix}`;
  const { length } = purchaseBody(`${prefix}${rate.firstCustomer}`, quantities);
  const head = `POST /sales/${saleId}/orders HTTP/1.1\r\nHost: ${new URL(url).host}\r\n`;
  const whole = `${head}Content-Type: application/json\r\nContent-Length: ${length}\r\n`;
  return tickets === undefined ? `${whole}${afterTicket}${body}` : `${whole}Authorization: Bearer `;
}
type Shape = Pick<rate.RateLoad, 'url' | 'prefix' | 'tickets' | 'quantities'>;
const afterTicket = '\r\n';
/** The end of a request, in Lua: what `purchaseBody` writes after the customer. */
const tailOf = ({ least, most }: Quantities): string =>
  most === 1 ? quoted('"}') : `string.format('","quantity":%3d}', ${least} + customer % ${most - least + 1})`;

/** A Lua string; requests and paths need no other escapes than those of JSON. */
const quoted = (text: string): string => JSON.stringify(text);

/** @param lines a file for `readLines`; null: attempts are not recorded */
export function wrkScript(load: rate.RateLoad, lines: string | null): string {
  const { saleIds, attempts, prefix, tickets, customers, quantities = oneUnit } = load;
  const customer = customers === undefined ? 'sent' : `sent % ${customers}`;
  const heads = saleIds.map((saleId) => quoted(requestHead(load, saleId)));
  const every = attempts === null ? tellEvery : Math.max(1, Math.min(tellEvery, Math.floor(attempts / 50)));
  const middle =
    tickets === undefined
      ? ''
      : `(tickets:read() or "") .. ${quoted(`\r\n${afterTicket}{"userId":"${prefix}`)} .. `;
  return `local heads = { ${heads.join(', ')} }
local sent = 0
${tickets === undefined ? '' : `local tickets = io.open(${quoted(tickets)})`}
${lines === null ? 'local function begun() end' : recording(lines)}
function request()
  sent = sent + 1
  if sent % ${every} == 0 then
    io.write('{"sent":', sent, '}\\n')
    io.flush()
  end
  begun(sent)
  local customer = ${rate.firstCustomer} + ${customer}
  return heads[sent % ${heads.length} + 1] .. ${middle}customer .. ${tailOf(quantities)}
end
function setup(thread) only = thread end
function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"durationMs":%f,"answers":%d,"refused":%d,"notBusy":%d,"unanswered":%d,"latencyMs":{"p50":%f,"p99":%f}}\\n',
    summary.duration / 1000, summary.requests, errors.status, only:get("notBusy") or 0,
    errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
`;
}

/** wrk calls `request` once before the load, to inspect the request: this is not an attempt. */
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
  if n > 1 then lines:write("[", n, ",", now(), "]\\n") end
end
notBusy = 0
function response(status, headers, body)
  if status >= 300 then
    if status ~= 503 then notBusy = notBusy + 1 end
    return
  end
  -- The last one: half an answer may stand before it.
  local order, customer = body:match('.*"orderId":"([^"]+)".-"userId":"%a+(%d+)"')
  if order == nil then return end
  local outcome = status == 200 and "replayed" or "accepted"
  local n = tonumber(customer) - ${rate.firstCustomer}
  lines:write(string.format('[%d,%s,%d,"%s","%s"]\\n', n, now(), status, outcome, order))
end`;
