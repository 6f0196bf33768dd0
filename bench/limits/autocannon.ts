/**
 * autocannon as the generator, where wrk is not installed: processes of their own, one for each processor that the load
 * may use, up to four. It takes several times the processor time of wrk for a request, so that on few processors it is
 * itself the limit of the fastest cells.
 */

import { type Program, startProgram } from '../processes.ts';
import {
  type Cannon,
  type FromCannon,
  isDone,
  isReady,
  isSent,
  type ToCannon,
} from './drivers/cannon-protocol.ts';
import type { Generator, Load, LoadNumbers } from './load.ts';
import { type Layout, pin } from './pin.ts';

const most = 4;
/** Beyond its end, the load may take so long to tell its result. */
const resultMs = 30_000;

export function autocannonGenerator(layout: Layout): Generator {
  const processes = Math.max(1, Math.min(most, Math.floor(layout.generatorCount / 2)));
  return {
    name: `autocannon 9 in ${processes === 1 ? 'one process' : `${processes} processes`}`,
    async run(load) {
      load.signal.throwIfAborted();
      const count = Math.min(processes, load.connections);
      await using cannons = new Cannons();
      for (let index = 0; index < count; index++) {
        const cannon = cannons.add();
        await pin(cannon.pid, layout.generator);
        cannon.tell({ kind: 'load', load: share(load, index, count) });
      }
      return await cannons.fire(load);
    },
  };
}

/** The part of one process: its connections, its attempts, and customers that no other has. */
export function share(load: Load, index: number, count: number): Cannon {
  const { url, sales, connections, durationMs, attempts } = load;
  const part = (whole: number): number => Math.floor((whole + count - 1 - index) / count);
  return {
    url,
    sales,
    durationMs,
    connections: part(connections),
    attempts: attempts === null ? null : part(attempts),
    customers: count === 1 ? load.customers : `${load.customers}${index}`,
  };
}

/** Together; a percentile is that of the slowest process, since percentiles cannot be added. */
export function together(parts: readonly LoadNumbers[]): LoadNumbers {
  const sum = (read: (numbers: LoadNumbers) => number): number => {
    return parts.reduce((total, numbers) => total + read(numbers), 0);
  };
  const latencies = parts.flatMap(({ latencyMs }) => latencyMs ?? []);
  return {
    durationMs: Math.max(...parts.map(({ durationMs }) => durationMs)),
    answers: sum(({ answers }) => answers),
    refused: sum(({ refused }) => refused),
    unanswered: sum(({ unanswered }) => unanswered),
    latencyMs:
      latencies.length === 0
        ? null
        : {
            p50: Math.max(...latencies.map(({ p50 }) => p50)),
            p99: Math.max(...latencies.map(({ p99 }) => p99)),
          },
  };
}

class Cannons implements AsyncDisposable {
  readonly #programs: Program<ToCannon, FromCannon>[] = [];

  add(): Program<ToCannon, FromCannon> {
    const program = startProgram<ToCannon, FromCannon>('limits/drivers/cannon.ts');
    this.#programs.push(program);
    return program;
  }

  /** All begin at the same time. */
  async fire({ signal, durationMs, onSent }: Load): Promise<LoadNumbers> {
    const sent = this.#programs.map(() => 0);
    await Promise.all(this.#programs.map((program) => program.hear(isReady, { signal })));
    for (const [index, program] of this.#programs.entries()) {
      program.onMessage((message) => {
        if (!isSent(message)) return;
        sent[index] = message.sent;
        onSent?.(sent.reduce((sum, one) => sum + one, 0));
      });
      program.tell({ kind: 'go' });
    }
    // Without an end in time, its attempts end it, and whoever watches it.
    const withinMs = durationMs === null ? 2 ** 31 - 1 : durationMs + resultMs;
    const done = await Promise.all(
      this.#programs.map((program) => program.hear(isDone, { signal, withinMs })),
    );
    signal.throwIfAborted();
    const numbers = together(done.map((one) => one.numbers));
    onSent?.(numbers.answers + numbers.unanswered); // the last ones came after the last report
    return numbers;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#programs.map((program) => program[Symbol.asyncDispose]()));
  }
}
