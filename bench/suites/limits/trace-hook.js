/** Runs in a traced service (`--import`): writes what src/concurrency/trace.ts records to the file of TRACE_FILE when the process ends. */
import { tracingChannel } from 'node:diagnostics_channel';
import { writeFileSync } from 'node:fs';

const spans = [];
const now = () => performance.timeOrigin + performance.now();
tracingChannel('stampede:trace').subscribe({
  start: (context) => {
    context.startMs = now();
  },
  end() {},
  error() {},
  asyncStart() {},
  asyncEnd: ({ name, batch, startMs }) => {
    const waitedMs = batch && startMs - performance.timeOrigin - batch.sinceMs;
    spans.push({
      name,
      startMs,
      endMs: now(),
      ...(batch && { size: batch.size, left: batch.left, waitedMs }),
    });
  },
});
process.on('exit', () => writeFileSync(process.env.TRACE_FILE, JSON.stringify(spans)));
