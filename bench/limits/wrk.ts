/**
 * wrk as the generator: one thread, and a script that puts each request together from two constant parts and a number.
 * wrk knows whole seconds only and no number of requests, so it is started for longer and ended with SIGINT, after which
 * it tells what it measured until then; its own clock says how long that was.
 */
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { startTool } from '../processes.ts';
import {
  answerTimeoutMs,
  firstCustomer,
  type Generator,
  type Load,
  type LoadNumbers,
  requestParts,
} from './load.ts';
import { type Layout, pinned } from './pin.ts';

/** The script says how many it has sent after so many, seldom enough to cost nothing, or after a fiftieth of all. */
const tellEvery = 20_000;
/** wrk ends by itself after this when nobody ends it, in seconds. */
const atMostS = 24 * 3_600;
/** Beyond its end, wrk may take so long to tell its result. */
const resultMs = 30_000;

interface Wrk {
  readonly program: string;
  readonly name: string;
  readonly layout: Layout;
  /** Scripts are written here. */
  readonly folder: string;
}

export function wrkGenerator({ program, name, layout, folder }: Wrk): Generator {
  return {
    name,
    async run(load) {
      load.signal.throwIfAborted();
      const script = join(folder, 'load.lua');
      await writeFile(script, wrkScript(load));
      const lasts = load.durationMs === null ? atMostS : Math.ceil(load.durationMs / 1_000) + 60;
      const options = ['-t', '1', '-c', String(load.connections), '-d', `${lasts}s`];
      const patience = ['--timeout', `${answerTimeoutMs / 1_000}s`];
      const command = [program, ...options, ...patience, '-s', script, load.url];
      return follow(pinned(command, layout.generator), load);
    },
  };
}

/** The script: requests, and the line that `parseWrk` reads. Pure. */
export function wrkScript({ url, sales, customers, attempts }: Load): string {
  const parts = Array.from({ length: sales.count }, (_, index) => {
    return requestParts(url, sales.first + index, customers);
  });
  const heads = parts.map(([head]) => quoted(head));
  const tail = quoted(parts[0]?.[1] ?? '');
  const [next, setup] =
    sales.count === 1
      ? ['head', `local head = ${heads[0]}`]
      : [`heads[sent % ${sales.count} + 1]`, `local heads = { ${heads.join(', ')} }`];
  const every = attempts === null ? tellEvery : Math.max(1, Math.min(tellEvery, Math.floor(attempts / 50)));
  return `${setup}
local tail = ${tail}
local sent = 0
function request()
  sent = sent + 1
  if sent % ${every} == 0 then
    io.write("sent ", sent, "\\n")
    io.flush()
  end
  return ${next} .. (${firstCustomer} + sent) .. tail
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

/** A Lua string; what stands in requests needs no other escapes. */
function quoted(text: string): string {
  const escaped = text.replaceAll('\\', '\\\\').replaceAll('"', '\\"');
  return `"${escaped.replaceAll('\r', '\\r').replaceAll('\n', '\\n')}"`;
}

const measured =
  /^measured duration_us=(\d+) answers=(\d+) refused=(\d+) unanswered=(\d+) p50_us=(\d+) p99_us=(\d+)$/;

/** Reads the script's last line; null: it is another line. */
export function parseWrk(line: string): LoadNumbers | null {
  const values = measured.exec(line)?.slice(1).map(Number);
  if (values === undefined) return null;
  const [durationUs = 0, answers = 0, refused = 0, unanswered = 0, p50Us = 0, p99Us = 0] = values;
  const latencyMs = answers === 0 ? null : { p50: p50Us / 1_000, p99: p99Us / 1_000 };
  return { durationMs: durationUs / 1_000, answers, refused, unanswered, latencyMs };
}

/** Runs wrk until the load's end, and reads what it tells. */
async function follow(command: readonly string[], load: Load): Promise<LoadNumbers> {
  let numbers: LoadNumbers | null = null;
  let ending = false;
  const end = (): void => {
    if (!ending) wrk.signal('SIGINT');
    ending = true;
  };
  const onLine = (line: string): void => {
    numbers ??= parseWrk(line);
    const sent = /^sent (\d+)$/.exec(line)?.[1];
    if (sent === undefined) return;
    load.onSent?.(Number(sent));
    if (load.attempts !== null && Number(sent) >= load.attempts) end();
  };
  await using wrk = startTool({ command, onLine });
  const timers = load.durationMs === null ? [] : [setTimeout(end, load.durationMs)];
  const abort = (): void => wrk.signal('SIGKILL');
  load.signal.addEventListener('abort', abort, { once: true });
  if (load.signal.aborted) abort();
  try {
    if (load.durationMs !== null) {
      timers.push(setTimeout(abort, load.durationMs + resultMs));
    }
    const how = await wrk.ended;
    load.signal.throwIfAborted();
    if (numbers === null) throw new Error(`wrk told no result: it ${how}`);
    return numbers;
  } finally {
    for (const timer of timers) clearTimeout(timer);
    load.signal.removeEventListener('abort', abort);
  }
}
