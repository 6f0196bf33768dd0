/** A process of lock clients, from its parent's side. The parent can pause it with all its holders, or kill it. */
import { setMaxListeners } from 'node:events';
import { readFile } from 'node:fs/promises';
import { eventually } from '../kit/eventually.ts';
import { type Program, startProgram, type Wait } from '../kit/processes.ts';
import type { Command, Commands, HolderEvent, Reply, What } from './protocol.ts';

type FromProcess = Reply | HolderEvent;

/** Opening a lock on a busy machine is slow. */
const REPLY_MS = 120_000;

export interface Sending extends Wait {
  /** A number that the parent chooses when it opens the client; 0 by default. */
  readonly client?: number;
}

export class LockClients implements AsyncDisposable {
  /** Called for each step of a holder. By default, a rejection that a lock lets escape fails all commands. */
  onEvent: (event: HolderEvent) => void = (event) => {
    if (event.kind === 'failed') this.#escaped.abort(new Error(`a rejection escaped: ${event.reason}`));
  };
  readonly #escaped = new AbortController();
  readonly #program: Program<Command, FromProcess>;
  readonly #pending = new Map<number, (reply: Reply) => void>();
  #ids = 0;

  constructor() {
    setMaxListeners(0, this.#escaped.signal);
    this.#program = startProgram<Command, FromProcess>('lock-client');
    this.#program.onMessage((message) => {
      if (message.kind === 'reply') this.#pending.get(message.id)?.(message);
      else this.onEvent(message);
    });
  }

  /** @throws the client's error, or when a rejection escapes, the process ends, the signal fires, or no reply comes in time */
  async send<Name extends keyof Commands>(
    name: Name,
    what: What<Name>,
    { client = 0, withinMs = REPLY_MS, signal }: Sending = {},
  ): Promise<ReturnType<Commands[Name]>> {
    const id = this.#ids++;
    const escaped = this.#escaped.signal;
    const ask = (answered: (reply: Reply) => void): void => {
      this.#pending.set(id, answered);
      this.#program.send({ id, client, name, what });
    };
    const reply = await this.#program
      .until(ask, { withinMs, signal: signal ? AbortSignal.any([signal, escaped]) : escaped })
      .finally(() => this.#pending.delete(id));
    if (reply.error !== undefined) throw new Error(reply.error);
    return reply.value as ReturnType<Commands[Name]>;
  }

  /**
   * Stops the process as SIGSTOP does, but between two steps of its event loop: never between a holder's check of its lease and the write
   * after it, where only a fence helps. SIGCONT continues it.
   */
  async pause(): Promise<void> {
    this.send('stop', {}).catch(() => {}); // its reply comes when the process continues
    const stateOf = async () =>
      (await readFile(`/proc/${this.#program.pid}/stat`, 'utf8')).split(') ')[1]![0];
    await eventually(stateOf, (state) => state === 'T', REPLY_MS);
  }

  signal(name: NodeJS.Signals): void {
    this.#program.signal(name);
  }

  /** Fires if the process ends before its disposal. */
  get died(): AbortSignal {
    return this.#program.died;
  }

  /** Warnings of Node and libraries: the last lines of standard error. */
  get warnings(): readonly string[] {
    return this.#program.tail();
  }

  async kill(): Promise<void> {
    this.signal('SIGKILL');
    await this.#program.ended;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.signal('SIGCONT');
    await this.#program[Symbol.asyncDispose]();
  }
}
